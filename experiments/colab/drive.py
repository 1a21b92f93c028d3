"""Google Drive, which outlives a Colab session: mounting it, and keeping uploaded files there."""

import contextlib
import filecmp
import os
import shutil
from pathlib import Path

from experiments.colab.cells import Stopped, on_colab
from jaxcnn.errors import first_line

UPLOADS = "uploads"  # a folder in the results folder


def mount() -> Path:
    """Mounts Google Drive, and returns the folder of the user's files.

    Raises:
      Stopped: it could not be mounted.
    """
    from google.colab import drive

    try:
        drive.mount(str(_mount_point()))
    except Exception as error:  # refused in the browser, timed out, or another of Colab's own
        raise Stopped(
            f"Google Drive was not mounted ({first_line(error)}): run this cell again and allow "
            "access, or set DRIVE = False in the first cell"
        ) from error
    return _mount_point() / "MyDrive"


def _mount_point() -> Path:
    """Where Google Drive usually is: a notebook starts in ``/content``."""
    return Path("drive").absolute()


def _contains(path: Path) -> bool:
    return on_colab() and path.absolute().is_relative_to(_mount_point())


def find(source: str, results: Path) -> Path:
    """The file or folder of this path, or the copy of a lost file that `keep` made.

    Args:
      source: the path, of something that may not exist.
      results: the results folder that `keep` was given.
    """
    place = Path(source).expanduser()
    copy = results / UPLOADS / place.name
    if place.exists() or not copy.is_file():
        return place
    print(f"{source}: found on Google Drive, in {copy.parent}")
    return copy


def keep(file: Path, results: Path) -> None:
    """Copies an uploaded file to Google Drive, from where `find` takes it in the next session.

    Does nothing if the results are not on Google Drive, or the file is there already. A failure is
    printed: it costs the next session an upload, and this one nothing.

    Args:
      file: a file; a folder is not copied.
      results: the results folder.
    """
    copy = results / UPLOADS / file.name
    if not file.is_file() or _contains(file) or not _contains(results):
        return
    partial = copy.with_name(f".{file.name}.partial")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.is_file() and filecmp.cmp(file, copy):
            return
        shutil.copy2(file, partial)
        os.replace(partial, copy)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        reason = error.strerror or error
        print(f"{file}: not kept on Google Drive ({reason}); upload it again after a disconnect")
        return
    print(f"{file}: kept on Google Drive, in {copy.parent}")


def kept_archives(results: Path) -> list[Path]:
    """The zip files that `keep` has copied, by name."""
    return sorted((results / UPLOADS).glob("*.zip"))
