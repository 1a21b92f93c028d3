"""The command line: ``python -m experiments.preflight --target=tpu-v5e-1``."""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from experiments.cli import FAILED, OK, flatten, parse_lists, print_start, run_command
from experiments.cli import console as make_console
from experiments.interrupts import exit_with
from experiments.preflight.options import PreflightConfig, PreflightOptions
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.harness.study import Case
    from experiments.records import Record


LISTS = ("batch_size", "image_size")  # the other lists are split when the cases are made


def main(arguments: list[str] | None = None) -> int:
    """Compiles and prints the results; returns an exit code of `experiments.cli`."""
    return run_command(lambda console: _print_and_run(parse(arguments), console))


def parse(arguments: Sequence[str] | None) -> list[PreflightConfig]:
    """Parses the command line: one configuration for each batch size and image size.

    Raises:
      InputError: an unknown option or a value that is not allowed.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    options, lists = parse_lists(PreflightOptions, "experiments.preflight", arguments, LISTS)
    flat = flatten(options)
    return [
        PreflightConfig(**flat | dict(zip(lists, values, strict=True)))
        for values in itertools.product(*lists.values())
    ]


def _print_and_run(configs: Sequence[PreflightConfig], output: "Console") -> int:
    config = configs[0]
    if not config.list_targets:
        print_start(f"--target={config.target}", sys.stderr if config.json else sys.stdout)
    if not config.json:
        return _run(configs, output)[0]
    with contextlib.redirect_stdout(sys.stderr):
        code, records = _run(configs, make_console())
    from experiments.records import to_json

    document = {"exit_code": code, "records": [to_json(record) for record in records]}
    print(json.dumps(document, indent=1, allow_nan=False))
    return code


def _run(configs: Sequence[PreflightConfig], console: "Console") -> tuple[int, "Sequence[Record]"]:
    """The exit code and the records."""
    from experiments.preflight import terminal

    config = configs[0]
    if config.list_targets:
        terminal.print_targets(console)
        return OK, ()
    cases = [case for config in configs for case in make_cases(config)]
    if config.target == PreflightConfig.target:
        _require_compiler(config.target)
    _check(cases)
    records = _compile_cases(cases, console)
    if len(records) == 1:
        terminal.print_case(console, records[0])
    else:
        terminal.print_cases(console, records)
    console.print(
        f"records in {config.results}/preflight", markup=False, highlight=False, soft_wrap=True
    )
    fits = all(record.status == "predicted" for record in records)
    return OK if fits else FAILED, records


def _require_compiler(names: str) -> None:
    """Rejects targets of which no accelerator's compiler is installed, and says what to install."""
    from experiments.preflight import libraries, targets

    missing = [libraries.missing(target) for target in targets.find(names)]
    if all(missing):
        raise InputError(f"--target={names}: {'; or '.join(dict.fromkeys(missing))}")


def make_cases(config: PreflightConfig) -> list["Case"]:
    """The case of each target, model, strategy and precision.

    Raises:
      InputError: a combination is impossible.
    """
    from experiments.preflight import targets
    from experiments.studies import preflight
    from jaxcnn import models, parallel, training

    _check_prices(config)
    if config.channels is not None and config.channels < 1:
        raise InputError(f"--channels={config.channels}: must be 1 or more")
    return preflight.build_cases(
        config.run_config(),
        targets.find(config.target),
        _split_names(config.model, models.MODELS),
        _split_names(config.strategy, parallel.FOR_ANY_NETWORK),
        _split_names(config.precision, training.PRECISIONS),
        effort=config.effort,
        search_largest=not config.fixed_batch,
        channels=config.channels,
    )


def _check(cases: Sequence["Case"]) -> None:
    """Rejects an impossible one of several cases before any is compiled."""
    from experiments.studies import preflight

    names = ("model", "image_size")
    distinct = {tuple(case.settings[name] for name in names): case for case in cases}
    for case in distinct.values() if len(cases) > 1 else ():
        preflight.check(case)


def _check_prices(config: PreflightConfig) -> None:
    from experiments.hardware import prices

    if config.price is not None and config.prices is not None:
        raise InputError("--price and --prices: give one of them")
    if config.price is not None:
        prices.parse_price(config.price)
    if config.prices is not None:
        prices.read_prices(config.prices)


def _split_names(text: str, known: Iterable[str]) -> list[str]:
    return list(known if text == "all" else dict.fromkeys(name.strip() for name in text.split(",")))


def _compile_cases(cases: list["Case"], console: "Console") -> list["Record"]:
    """The record of each case; if there are several, each is printed when it is known."""
    from experiments.harness.progress import StudyProgress
    from experiments.harness.runner import run_case
    from experiments.preflight import terminal
    from experiments.studies import STUDIES
    from jaxcnn import backend

    cpu = backend.select("cpu")
    records: list[Record] = []
    study = STUDIES["preflight"]
    with study.shared(), StudyProgress(console, "preflight") as bar:
        for number, case in enumerate(cases):
            bar.begin("-".join(case.parts), len(cases) - number, records)
            record, _ = run_case("preflight", study, case, cpu, console)
            records.append(record)
            if len(cases) > 1:
                terminal.print_line(console, record, number + 1, len(cases))
    return records


if __name__ == "__main__":
    exit_with(main())
