"""Keeps two runs of one case from writing into each other's checkpoints."""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock
from etils import epath

from experiments import output_files
from jaxcnn.errors import InputError

_ATTEMPTS = 10


@contextlib.contextmanager
def case_lock(scratch: epath.Path) -> Iterator[None]:
    """Holds the lock of a case inside the block.

    The lock is a file beside the case, so that all processes see it that see the results: those of
    other containers and users too. A process that is killed holds no lock. The file is removed at
    the end. A bucket has no locks: there it is in this machine's temporary folder.

    Args:
      scratch: the case's own folder.

    Raises:
      InputError: another run holds the lock, or the file cannot be written.
    """
    path = lock_path(scratch)
    lock = filelock.FileLock(path, mode=0o666)
    try:
        _acquire(lock, path.parent)
    except filelock.Timeout as error:
        raise InputError(
            f"another run is measuring this case in {scratch.parent}: "
            "wait for it, or choose another --results"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot lock this case ({error.strerror or error}); choose another --results"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)  # one who waits notices that its file has no name any more
        lock.release()
        if not output_files.is_remote(scratch):
            with contextlib.suppress(OSError):
                path.parent.rmdir()  # if nothing was measured


def _acquire(lock: filelock.BaseFileLock, folder: Path) -> None:
    """Makes the folder and acquires the lock in it, though another run may remove an empty one."""
    for _ in range(_ATTEMPTS):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
            return
        except FileNotFoundError:
            continue
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def lock_path(scratch: epath.Path) -> Path:
    """The file of the lock."""
    if output_files.is_remote(scratch):
        name = hashlib.sha256(str(scratch).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"jaxcnn-{name}.lock"
    name = scratch.name.removesuffix(".checkpoints")
    return Path(scratch.expanduser().resolve()).parent / f".{name}.lock"
