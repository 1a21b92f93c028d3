"""Serves the page to browsers on this machine, and rebuilds it when there are new records."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

from etils import epath

from experiments.report.page import build_page
from jaxcnn.errors import InputError

ADDRESS = "127.0.0.1"
_HOSTS = ("127.0.0.1", "localhost")  # other names may be a page of the Internet's that points here


class Server(http.server.ThreadingHTTPServer):
    """A server of one page.

    ``/`` is the page, built from the records that are there now; ``/version`` changes with them,
    and the page asks for it every few seconds.

    Attributes:
      folders: results folders.
    """

    daemon_threads = True

    def __init__(self, folders: Sequence[epath.Path], port: int):
        """Binds a port.

        Args:
          folders: results folders.
          port: 0 for any that is free.

        Raises:
          InputError: the port cannot be used.
        """
        self.folders = [Path(folder) for folder in folders]
        self._lock = threading.Lock()
        self._built = ("", b"")
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"--port={port}: {reason}; choose another, or 0 for any") from error

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def version(self) -> str:
        """Changes whenever a record is written, replaced or removed."""
        return str(hash(tuple(_state(path) for path in sorted(_record_paths(self.folders)))))

    def page(self) -> bytes:
        """The page; built anew if the records have changed."""
        with self._lock:
            version = self.version()
            if self._built[0] != version:
                self._built = (version, build_page(self.folders, served=version).encode())
            return self._built[1]


def _record_paths(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in folder.glob("*/*.json")]


def _state(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:  # removed meanwhile
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """Answers with the page or its version."""
        contents: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/": ("text/html; charset=utf-8", self.server.page),
            "/version": ("text/plain", lambda: self.server.version().encode()),
        }
        host = self.headers.get("Host", "").partition(":")[0]
        if host not in _HOSTS:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        if self.path.partition("?")[0] not in contents:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, content = contents[self.path.partition("?")[0]]
        body = content()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the page was closed or loaded again
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Prints nothing."""
