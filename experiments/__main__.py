"""All commands as one program: ``jaxcnn``, or ``python -m experiments``.

A command is imported when it is called, so that ``--version`` and ``--help`` are quick.
"""

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from experiments import interrupts, set_up_process

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
      module: has ``main(arguments)``, which returns an exit code.
      about: what the command does.
    """

    module: str
    about: str


COMMANDS = {
    "run": Command("experiments.run", "train CNNs and measure what the accelerator is worth"),
    "report": Command("experiments.report.__main__", "build one page from records"),
    "compare": Command("experiments.compare", "compare records or versions with a baseline"),
    "preflight": Command(
        "experiments.preflight.__main__", "compile for accelerators that are not attached"
    ),
    "rehearsal": Command(
        "experiments.rehearsal.__main__",
        "compile what a visit to an accelerator would run",
    ),
    "predict": Command("experiments.predict", "classify images, or detect objects in them"),
    "export": Command("experiments.export", "write records as a table, or weights as a file"),
    "summary": Command("experiments.summary", "print a network layer by layer"),
    "info": Command("jaxcnn.info", "print versions, devices and the CPU kernels in use"),
}


def main(arguments: list[str] | None = None) -> int:
    """Calls the command that the first argument names.

    Args:
      arguments: the command line; that of this process if None.

    Returns:
      An exit code of `experiments.cli`.
    """
    first, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if first == "--version":
        return _print_version()
    if first not in COMMANDS:
        from experiments.cli import run_command

        return run_command(lambda console: _without_command(first, console))
    if first == "run":  # before JAX is imported
        from jaxcnn import keep_freed_memory

        keep_freed_memory()
    module = importlib.import_module(COMMANDS[first].module)
    return _print_info(module, rest) if first == "info" else module.main(rest)


def start() -> NoReturn:
    """The console script: calls `main` in a process set up as by ``python -m experiments``."""
    set_up_process()
    interrupts.exit_with(main())


def _print_version() -> int:
    import jaxcnn

    print(f"jaxcnn {jaxcnn.__version__}")
    return 0


def _print_info(module: ModuleType, arguments: list[str]) -> int:
    """Calls the command of the library, which does not know the streams and errors of this one."""
    from experiments.cli import program_name, run_command

    program = program_name(COMMANDS["info"].module)
    return run_command(lambda console: module.main(arguments, program))


def _without_command(first: str, console: "Console") -> int:
    """Prints the commands, or rejects one that is not known.

    Raises:
      InputError: there is no such command.
    """
    from experiments.cli import OK, program_name
    from jaxcnn.errors import InputError, require_known

    program = program_name()
    if first in ("-h", "--help"):
        lines = [f"{name:<11}{command.about}" for name, command in COMMANDS.items()]
        usage = f"usage: {program} COMMAND [OPTIONS]"
        further = f"{program} COMMAND --help shows the options, {program} --version the version"
        for line in (usage, "", *lines, "", further):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return OK
    if not first or first.startswith("-"):
        problem = f"{first}: the command comes first" if first else "a command must be given"
        raise InputError(
            f"{problem}: one of {', '.join(COMMANDS)}; {program} --help describes them"
        )
    require_known("command", first, COMMANDS)
    return OK


if __name__ == "__main__":
    start()
