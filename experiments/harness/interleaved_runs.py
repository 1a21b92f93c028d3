"""Runs of two versions of this project in turn, each in processes of its own.

A version is a Git revision of the checkout in the working directory, a folder with a checkout, or
an environment in which this project is installed. Revisions and checkouts are installed into a
temporary folder, kernels included, so that the checkout stays as it is. The two runs of a round
follow each other; every other round begins with the candidate.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.cli import BAD_INPUT
from jaxcnn.errors import InputError

PROGRAM = ("-m", "experiments.run")
SIDES = ("baseline", "candidate")
COMPARED = "versions.json"  # in the results folder: the versions and options of its rounds

Launch = Callable[[Sequence[str], Mapping[str, str]], tuple[int, str]]


@dataclass(frozen=True)
class Version:
    """One side of a comparison.

    Attributes:
      name: as on the command line.
      python: the interpreter.
      path: the folder in which the version is installed; None if it is in the interpreter's own
        environment.
    """

    name: str
    python: str
    path: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its processes: they do not import from the working directory."""
        variables = os.environ | {"PYTHONSAFEPATH": "1"}
        if self.path is None:
            return variables
        paths = [str(self.path), *filter(None, [variables.get("PYTHONPATH")])]
        return variables | {"PYTHONPATH": os.pathsep.join(paths)}


def launch(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command; returns its exit code and what it printed to stderr."""
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


def prepare(name: str, folder: Path, launch: Launch = launch) -> Version:
    """Finds a version, and installs it if it is a revision or a checkout.

    Args:
      name: a Python interpreter, the folder of an environment, that of a checkout, or a revision.
      folder: does not exist; where a revision or a checkout is installed.
      launch: runs a command.

    Raises:
      InputError: there is no such version, or it cannot be installed.
    """
    identity = resolve(name)
    path = Path(identity)
    if path.is_absolute() and path.is_file():
        return Version(name, identity)
    is_checkout = path.is_absolute()
    source = identity if is_checkout else f"git+{Path.cwd().as_uri()}@{identity}"
    _install(name, source, folder, launch)
    return Version(name, sys.executable, folder)


def resolve(name: str) -> str:
    """The absolute path of the interpreter or checkout of a version, or the commit of a revision.

    Raises:
      InputError: there is no such version.
    """
    place = Path(name).expanduser()
    if place.is_file() and os.access(place, os.X_OK):
        return str(place.absolute())
    if (place / "bin" / "python").is_file():
        return str((place / "bin" / "python").absolute())
    if (place / "pyproject.toml").is_file():
        return str(place.absolute())
    return _commit(name)


def require_same(results: Path, names: Sequence[str], options: Sequence[str]) -> None:
    """Notes in the results folder what is compared, or checks that its rounds are of the same.

    Args:
      results: exists.
      names: of the two versions, as for `prepare`.
      options: of `experiments.run`.

    Raises:
      InputError: there is no such version, or the folder has rounds of another comparison.
    """
    sides = dict(zip(SIDES, map(resolve, names), strict=True))
    compared = sides | {"options": " ".join(options)}
    file = results / COMPARED
    if not any(results.glob("*/round-*/*/*.json")):
        file.write_text(json.dumps(compared, indent=1))
        return
    try:
        earlier = json.loads(file.read_text())
        changes = [
            f"{name} {earlier.get(name)!r}, not {value!r}"
            for name, value in compared.items()
            if earlier.get(name) != value
        ]
    except (OSError, ValueError, AttributeError):
        changes = [f"an unknown comparison ({COMPARED} cannot be read)"]
    if changes:
        raise InputError(
            f"--results={results} has rounds of {', of '.join(changes)}: choose another folder"
        )


def round_folder(folder: Path, number: int) -> Path:
    """Where the records of a round are, which is counted from 0, in the folder of a version."""
    return folder / f"round-{number + 1:03}"


def run_round(
    versions: Sequence[Version],
    number: int,
    options: Sequence[str],
    folders: Sequence[Path],
    launch: Launch = launch,
) -> None:
    """Runs the study with each version once; what is already in its folder is not run again.

    Args:
      versions: in which order they run in rounds of even number; in the others it is reversed.
      number: of the round, from 0.
      options: of `experiments.run`.
      folders: for each version, where its records go, in a folder of the round's own.
      launch: runs a command.

    Raises:
      InputError: a version refuses the options, or ends without records.
    """
    sides = list(zip(versions, folders, strict=True))
    for version, folder in sides[:: -1 if number % 2 else 1]:
        results = round_folder(folder, number)
        command = [version.python, *PROGRAM, *options, f"--results={results}"]
        code, errors = launch(command, version.environment)
        last = (errors.strip().splitlines() or ["no message"])[-1].removeprefix("error: ")
        if code == BAD_INPUT or not any(results.rglob("*.json")):
            raise InputError(f"{version.name}: experiments.run ended with exit code {code}: {last}")


def _commit(name: str) -> str:
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{name}: git cannot be started ({error.strerror or error})") from error
    if result.returncode or not Path("pyproject.toml").is_file():
        raise InputError(
            f"{name}: neither a Python interpreter, nor the folder of an environment or a "
            "checkout, nor a revision of a Git checkout in the working directory"
        )
    return result.stdout.strip()


def _install(name: str, source: str, folder: Path, launch: Launch) -> None:
    """Installs without dependencies, which are those of this environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    # Without setuptools here, pip downloads it.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    code, errors = launch([*command, str(folder), *isolation, source], os.environ)
    if code:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{name}: pip cannot install it: {last}")
