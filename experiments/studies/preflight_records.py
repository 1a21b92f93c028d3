"""Whether a record of the preflight is still valid, and its current prices and estimate."""

from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.harness.study import DIGEST, Case
from experiments.preflight import libraries, targets
from experiments.preflight.compiler import Compiler
from experiments.preflight.estimates import with_current_figures
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import LOWEST, CompileRequest
from experiments.preflight.targets import Target
from experiments.records import Record

# Settings where they are not the published ones, or not the default mesh.
IF_GIVEN = ("num_classes", "channels", "microbatches", "mesh")


def refresh(case: Case, record: Record) -> Record | None:
    """The record at current prices, with bounds and estimate by the current tables and model.

    Returns:
      None if the program of the case is another one by now, or the record lacks its operations.
    """
    spec, target = program_spec(case), targets.target(case.settings["target"])
    with Compiler(target, time_limit=case.config.time_limit) as compiler:
        program = compiler.program(compile_request(spec, target, LOWEST))
    provenance = record.provenance
    if not program or program != provenance.get("program") or "operations" not in provenance:
        return None
    price = price_of_chip(case.config, target, provenance.get("device_kind", ""))
    price_per_hour = price and price * target.chips
    return with_current_figures(record, price_per_hour, case.config.results)


def program_spec(case: Case) -> ProgramSpec:
    settings = case.settings
    return ProgramSpec(
        model=case.config.model,
        batch_size=settings["batch_size"],
        strategy=settings["strategy"],
        precision=settings["precision"],
        image_size=settings["image_size"],
        **{name: settings[name] for name in (*IF_GIVEN, DIGEST) if name in settings},
    )


def compile_request(spec: ProgramSpec, target: Target, level: str) -> CompileRequest:
    """To compile a program, or to lower it if the compiler is not installed."""
    return CompileRequest(spec, target, level, counts=True, lower=bool(libraries.missing(target)))


def price_of_chip(config: RunConfig, target: Target, kind: str) -> float | None:
    """US dollars per hour of one chip; None if unknown."""
    return prices.find_price(
        target.device,
        (kind,),
        price=config.price,
        prices=config.prices,
        devices=config.devices,
        is_checked=True,
    )[0]
