"""Digests of the contents of files, kept so that unchanged files are not read again.

A file counts as unchanged if its path, size, time of modification, time of change and inode are.
The digests are kept in the user's cache folder; without one, every file is read each time.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs

_TABLE = (
    "create table if not exists digests "
    "(path text primary key, size int, modified int, changed int, inode int, digest text)"
)
_ROW = "select digest from digests where path=? and size=? and modified=? and changed=? and inode=?"
_LOCK_TIMEOUT = 5.0  # seconds that another process may keep the file locked


def folder_digest(root: Path, files: Iterable[Path]) -> str:
    """A digest of some files of a folder: of their paths within it and of their contents.

    Args:
      root: the folder.
      files: in it.

    Returns:
      64 hexadecimal digits.

    Raises:
      OSError: a file cannot be read.
    """
    files = sorted(files)
    names = [os.fsencode(file.relative_to(root)).hex() for file in files]
    lines = [f"{name} {digest}" for name, digest in zip(names, _digests(files), strict=True)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def path_digest(path: Path) -> str:
    """The digest of a file, or of all files in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_text("")
    ...     path_digest(Path(folder) / "a")[:16]
    'e3b0c44298fc1c14'
    """
    if path.is_file():
        return next(_digests([path]))
    return folder_digest(path, (file for file in path.rglob("*") if file.is_file()))


def _digests(files: list[Path]) -> Iterator[str]:
    with _digest_table() as connection:
        for file in files:
            yield _digest(file, connection)


def _digest(file: Path, connection: sqlite3.Connection | None) -> str:
    status = file.stat()
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    key = os.fsencode(file.resolve()).hex()
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            if row := connection.execute(_ROW, (key, *state)).fetchone():
                return row[0]
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            row = (key, *state, digest)
            connection.execute("insert or replace into digests values (?, ?, ?, ?, ?, ?)", row)
    return digest


@contextlib.contextmanager
def _digest_table() -> Iterator[sqlite3.Connection | None]:
    """The table of digests; None if it cannot be opened."""
    connection = None
    try:
        folder = platformdirs.user_cache_path("jaxcnn")
        folder.mkdir(parents=True, exist_ok=True)
        # Each digest is kept at once: a run that is killed keeps those of its time so far.
        connection = sqlite3.connect(
            folder / "digests.sqlite", timeout=_LOCK_TIMEOUT, isolation_level=None
        )
        connection.execute("pragma synchronous = off")
        connection.execute(_TABLE)
    except (OSError, sqlite3.Error):
        connection = None
    try:
        yield connection
    finally:
        if connection is not None:
            connection.close()
