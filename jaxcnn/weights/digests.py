"""SHA-256 digests of the files of a checkpoint, so that damage is noticed when it is read.

The digests of the save ``NAME/STEP`` are in ``digests/NAME-STEP.json``, written after the save is
complete. Checkpoints of older versions have none, and those in buckets neither: object stores
check what they deliver.
"""

import hashlib
import json
import os
from pathlib import Path

from etils import epath

_FOLDER = "digests"


def write(folder: epath.Path, name: str, step: int) -> None:
    """Writes the digests of a save, and removes those of saves that are gone.

    Args:
      folder: of the checkpoint.
      name, step: of the save, as ``last`` and 100.
    """
    if _is_remote(folder):
        return
    digests = _digests(Path(folder) / name / str(step))
    place = Path(folder) / _FOLDER
    place.mkdir(exist_ok=True)
    temporary = place / f".{name}-{step}.tmp"
    temporary.write_text(json.dumps(digests, indent=1))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(place / f"{name}-{step}.json")
    for path in place.glob(f"{name}-*.json"):
        if not (Path(folder) / name / path.stem.removeprefix(f"{name}-")).exists():
            path.unlink(missing_ok=True)


def verify(folder: epath.Path, name: str, step: int) -> None:
    """Compares the files of a save with their digests, if it has any.

    Raises:
      ValueError: a file differs, is missing, or was added; the message names it.
    """
    path = Path(folder) / _FOLDER / f"{name}-{step}.json"
    if _is_remote(folder) or not path.exists():
        return
    expected = json.loads(path.read_text())
    if not isinstance(expected, dict):
        raise ValueError(f"{_FOLDER}/{path.name} is not a JSON object")
    digests = _digests(Path(folder) / name / str(step))
    for file in sorted(expected.keys() | digests.keys()):
        if file not in digests:
            raise ValueError(f"{name}/{step}/{file} is missing")
        if expected.get(file) != digests[file]:
            raise ValueError(f"{name}/{step}/{file} is not what was saved: its SHA-256 differs")


def _digests(folder: Path) -> dict[str, str]:
    """The digest of every file, by its path in the folder."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            digests[path.relative_to(folder).as_posix()] = digest
    return digests


def _is_remote(folder: epath.Path) -> bool:
    return "://" in str(folder)
