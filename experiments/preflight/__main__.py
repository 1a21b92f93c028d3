"""The command line: ``python -m experiments.preflight --target=tpu-v5e-1``."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from experiments.cli import BAD_INPUT, FAILED, parse_options, run_command
from experiments.config import RunConfig
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.study import Case
    from experiments.records import Record

__all__ = ["BAD_INPUT", "FAILED", "PreflightConfig", "main"]


@dataclass(frozen=True)
class PreflightConfig:
    """Compiles train steps for accelerators that are not here, and says whether they fit, how large a batch does, and what to expect at best.

    Nothing runs. Models, targets, strategies and precisions may be several, by commas, or `all`; each combination is a case.
    Ends with 0 only if every program was compiled and fits.
    """

    target: str = "colab"
    """tpu-v5e-4 (as Google counts), tpu-v5e:2x4 (by its shape), gpu-t4, gpu-h100-8, cpu; colab: what its free tier lends; all: one of each kind."""
    model: str = "lenet5"
    """The network, by its published recipe; mlp:4096 is an MLP of that width."""
    batch_size: int | None = None
    """Images in a step, over all devices together; the recipe's, or 128, if not given."""
    image_size: int | None = None
    """Side of the images; the published one if not given."""
    strategy: str = "auto"
    """jit, pmap, data; auto is jit on one device and data on several."""
    precision: str = "float32"
    """float32, bfloat16 or float16."""
    effort: Literal["quick", "full"] = "quick"
    """quick compiles at the compiler's lowest level of optimisation, which takes a tenth of the time and plans nearly the same
    memory; full as it would be run."""
    fixed_batch: bool = False
    """Do not search for the largest batch that fits."""
    price: str | None = None
    """What a chip costs, in US dollars an hour, as in 2.5/h; the device table's price if not given."""
    prices: str | None = None
    """A TOML file of such prices by accelerator."""
    results: str = "results"
    """Folder for records; may be a bucket."""
    time_limit: float = 1800.0
    """Seconds that the compiler may take for a program."""
    force: bool = False
    """Compile again what is known already."""
    list_targets: bool = False
    """Show what can be compiled for, and which compilers are installed, and end."""

    def run_config(self) -> RunConfig:
        """What the study takes of it.

        Raises:
          InputError: a number that cannot be.
        """
        names = ("batch_size", "image_size", "price", "prices", "results", "time_limit", "force")
        return RunConfig(**{name: getattr(self, name) for name in names})


def main(arguments: list[str] | None = None) -> int:
    """Compiles and tells; returns an exit code of `experiments.run.run_command`."""
    return run_command(
        lambda console: _run(
            parse_options(PreflightConfig, "experiments.preflight", arguments), console
        )
    )


def _run(config: PreflightConfig, console: "Console") -> int:
    from experiments.preflight import terminal

    if config.list_targets:
        terminal.print_targets(console)
        return 0
    cases = _cases(config)
    found = _compile(cases, console)
    if len(found) == 1:
        terminal.print_case(console, found[0])
    else:
        terminal.print_cases(console, found)
    console.print(f"records in {config.results}/preflight", highlight=False, soft_wrap=True)
    return 0 if all(record.status == "predicted" for record in found) else FAILED


def _cases(config: PreflightConfig) -> list["Case"]:
    from experiments.hardware import prices
    from experiments.preflight import targets
    from experiments.studies import preflight
    from jaxcnn import models, parallel, training

    if config.price is not None and config.prices is not None:
        raise InputError("--price and --prices: give one of them")
    if config.price is not None:
        prices.parse_price(config.price)
    if config.prices is not None:
        prices.read_prices(config.prices)
    chosen = (
        _several(config.model, models.MODELS), _several(config.strategy, parallel.STRATEGIES), _several(config.precision, training.PRECISIONS)
    )  # fmt: skip
    return preflight.points(
        config.run_config(),
        targets.find(config.target),
        *chosen,
        effort=config.effort,
        largest=not config.fixed_batch,
    )


def _several(names: str, known: dict) -> list[str]:
    return list(known) if names == "all" else [name.strip() for name in names.split(",")]


def _compile(cases: list["Case"], console: "Console") -> list["Record"]:
    """Each case's record, in turn; a line for each where there is no terminal to draw the progress on."""
    from experiments.harness.progress import Cases
    from experiments.harness.runner import run_case
    from experiments.preflight import terminal
    from experiments.studies import STUDIES
    from jaxcnn import backend

    here, found = backend.select("cpu"), []
    with Cases(console, "preflight") as bar:
        for number, case in enumerate(cases):
            bar.begin("-".join(case.parts), len(cases) - number, found)
            found.append(run_case("preflight", STUDIES["preflight"], case, here, console)[0])
            if len(cases) > 1:
                terminal.print_line(console, found[-1], number + 1, len(cases))
    return found


if __name__ == "__main__":
    sys.exit(main())
