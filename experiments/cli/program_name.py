"""How a command was called, for its usage text and its messages."""

import sys
from pathlib import PurePath

SCRIPT = "jaxcnn"  # the console script of pyproject.toml


def program_name(module: str = "", called_as: str | None = None) -> str:
    """The words that call a command, as the user called it.

    Args:
      module: of the command, such as ``experiments.run``; empty for that of all commands.
      called_as: the path of the program; that of this process if None.

    >>> program_name("experiments.run", "/usr/bin/jaxcnn")
    'jaxcnn run'
    >>> program_name("experiments.run", "/src/experiments/__main__.py")
    'python -m experiments run'
    >>> program_name("experiments.run", "/src/experiments/run.py")
    'python -m experiments.run'
    """
    path = PurePath(sys.argv[0] if called_as is None else called_as)
    command = module.rpartition(".")[2]
    if path.stem == SCRIPT:
        return f"{SCRIPT} {command}".rstrip()
    if path.name == "__main__.py" and path.parent.name == "experiments":
        return f"python -m experiments {command}".rstrip()
    return f"python -m {module or 'experiments'}"
