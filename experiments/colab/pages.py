"""Showing the report below a cell: in a frame that loads its file, so that notebooks stay small."""

import http.server
import os
import threading
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

from experiments.colab.cells import on_colab, stopping

# The page gets an origin of its own: no script of it reaches the notebook.
_SANDBOX = 'sandbox="allow-scripts allow-downloads"'


def show_report(folders: Sequence[Path], page: Path, *, height: int = 900) -> None:
    """Builds the report and shows it below the cell.

    Args:
      folders: results folders.
      page: the HTML file to write; an existing file is replaced.
      height: of the frame, in pixels.

    Raises:
      Stopped: the file cannot be written.
    """
    from etils import epath

    from experiments import report

    with stopping():
        report.write_page(folders, epath.Path(page))
    show_page(page, height=height)


def print_summary(folders: Sequence[Path]) -> None:
    """Prints what the records say, and how each accelerator compares with its machine's CPU.

    Args:
      folders: results folders.
    """
    from experiments import records, report
    from experiments.analysis import host_cpu

    loaded, problems = records.load(folders)
    newest = records.latest(loaded)
    print(*problems, *report.sentences(newest), *host_cpu.conclusion(newest), sep="\n")


def show_page(page: Path, *, height: int = 900) -> None:
    """Shows an HTML file below the cell; the notebook has its address only.

    Jupyter loads the file from the folder of the notebook. On Colab, whose browser cannot read
    files, a server in the notebook's process sends it; if that fails, the browser downloads it.

    Args:
      page: the file; outside Colab in a folder that Jupyter shows.
      height: of the frame, in pixels.
    """
    print(f"report: {page}")
    if on_colab():
        _show_on_colab(page, height)
        return
    from IPython.display import IFrame, display

    address = urllib.parse.quote(Path(os.path.relpath(page)).as_posix())
    display(IFrame(address, "100%", height, extras=[_SANDBOX]))


def _show_on_colab(page: Path, height: int) -> None:
    from google.colab import files

    try:
        from google.colab import output

        output.serve_kernel_port_as_iframe(serve(page), width="100%", height=str(height))
    except Exception as error:  # of Colab's own
        print(f"the report cannot be shown here ({error}): the browser downloads it")
        files.download(str(page))


def serve(page: Path) -> int:
    """Serves one file to this machine, under any address, for as long as the process runs.

    Returns:
      The port.
    """
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(page))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def _handler(page: Path) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                content = page.read_bytes()
            except OSError:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing: output would appear below the cell."""

    return Handler
