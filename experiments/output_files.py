"""Files that a command writes: completely or not at all, and only where a file may be.

A file takes its place by renaming a temporary one in the same folder, after its content is on the
disk. Devices, pipes and records are never replaced. Temporary files that a killed process has left
are removed by the next one that writes there.
"""

import contextlib
import importlib.util
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from jaxcnn.errors import InputError

_SCHEMES = {"gs": "gcsfs", "s3": "s3fs"}  # of buckets, and the packages that `etils.epath` needs
_PREFIX, _SUFFIX = ".jaxcnn-", ".tmp"
_STRAY_SECONDS = 3600.0  # far more than writing a file takes
_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


def check(path: str | os.PathLike, option: str = "--out") -> epath.Path:
    """The path of a file that may be written; nothing is written yet.

    Args:
      path: ``~`` is the user's home.
      option: whose value it is, for the message.

    Raises:
      InputError: its folder does not exist or is not writable, or something other than a file is
        there, or a record.
    """
    out = expand(path, option)
    if is_remote(out):
        return out
    try:
        status = os.stat(out)
    except FileNotFoundError:
        _require_writable_folder(out, option)
        return out
    except (OSError, ValueError) as error:
        raise _cannot_write(path, option, error) from error
    kinds = [kind for is_kind, kind in _KINDS.items() if is_kind(status.st_mode)]
    if kinds:
        raise InputError(f"{option}={path}: that is {kinds[0]}; choose a file")
    if is_record(out):
        raise InputError(
            f"{option}={path}: that is a record, which is never replaced; choose another file"
        )
    _require_writable_folder(out, option)
    return out


def write(path: str | os.PathLike, content: bytes, option: str = "--out") -> epath.Path:
    """Writes a file, and replaces the one that is there.

    Args:
      path, option: as of `check`.
      content: of the file.

    Returns:
      The path, ``~`` expanded.

    Raises:
      InputError: as `check`; or writing fails, as on a full disk. Then nothing has changed.
    """
    out = check(path, option)
    if is_remote(out):
        out.write_bytes(content)  # an object in a bucket is replaced as a whole
        return out
    try:
        with _temporary(Path(os.path.realpath(out)).parent, content) as temporary:
            target = Path(os.path.realpath(out))  # the file that a link names
            os.replace(temporary, target)
            _sync_folder(target.parent)
    except OSError as error:
        raise _cannot_write(path, option, error) from error
    return out


def create(path: epath.Path, content: bytes) -> bool:
    """Writes a new file; returns False, and changes nothing, if there is one already.

    Raises:
      OSError: it cannot be written; then nothing is left behind.
    """
    if is_remote(path):
        if path.exists():
            return False
        path.write_bytes(content)
        return True
    with _temporary(Path(path).parent, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if os.path.lexists(path):
                return False
            os.rename(temporary, path)
        _sync_folder(Path(path).parent)
    return True


def is_record(path: epath.Path) -> bool:
    """Whether a file is a record, or a list of records."""
    if path.suffix.lower() != ".json":
        return False
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    first = content[0] if isinstance(content, list) and content else content
    return isinstance(first, dict) and {"study", "case", "schema"} <= first.keys()


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is in a bucket or of another protocol."""
    return "://" in str(path)


@contextlib.contextmanager
def _temporary(folder: Path, content: bytes) -> Iterator[Path]:
    """A temporary file with this content, on the disk; removed at the end if it is still there."""
    _remove_strays(folder)
    path = folder / f"{_PREFIX}{uuid.uuid4().hex}{_SUFFIX}"
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _remove_strays(folder: Path) -> None:
    oldest = time.time() - _STRAY_SECONDS
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Puts the names in a folder on the disk, where the system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def expand(path: str | os.PathLike, option: str, *, is_used: bool = True) -> epath.Path:
    """The path of an option; ``~`` is the user's home.

    Args:
      path, option: as of `check`.
      is_used: here and now, so that a bucket needs its package.

    Raises:
      InputError: it is not a path, or names an unknown user or a place that cannot be read or
        written.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise InputError(f"{option}={text!r}: not the name of a file or folder")
    scheme, separator, _ = text.partition("://")
    if separator and scheme not in _SCHEMES:
        raise InputError(
            f"{option}={text}: {scheme}:// cannot be used; give a local path, or one of "
            f"{', '.join(f'{known}://' for known in _SCHEMES)}"
        )
    if separator and is_used and importlib.util.find_spec(_SCHEMES[scheme]) is None:
        package = _SCHEMES[scheme]
        raise InputError(f"{option}={text}: buckets need the package {package}: install it")
    try:
        out = epath.Path(text).expanduser()
    except (
        ImportError,
        RuntimeError,
        ValueError,
    ) as error:  # a bucket without its library, ~nobody
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{option}={text}: {reason}; choose another file") from error
    if str(out).startswith("~"):
        raise InputError(f"{option}={text}: there is no such user; write the folder in full")
    return out


def _require_writable_folder(out: epath.Path, option: str) -> None:
    folder = Path(os.path.realpath(out)).parent
    if not folder.is_dir():
        raise InputError(
            f"{option}={out}: there is no folder {folder}; create it, or choose another"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{option}={out}: {folder} is not writable; choose another folder")


def _cannot_write(path: str | os.PathLike, option: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{option}={path}: cannot write there ({reason}); choose another file")
