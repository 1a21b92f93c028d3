"""The page as PDF or PNG, by Chromium or Chrome, if one of them is installed."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from jaxcnn.errors import InputError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SUFFIXES = (".pdf", ".png")
WIDTH = 1280  # CSS pixels
PAPER_WIDTH = 1030  # of A4 across, without margins
SCALE = 2  # pixels of the image per CSS pixel
_SECONDS = 300.0
_VIRTUAL_MILLISECONDS = 20_000  # in which figures are drawn; takes no longer than drawing does
_HEIGHT = re.compile(r'data-height="(\d+)"')  # set by page.js


def browser(option: str) -> str:
    """The path of a browser.

    Args:
      option: that needs it, with its value, for the message.

    Raises:
      InputError: none is installed.
    """
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise InputError(
        f"{option}: needs Chromium or Chrome, and neither is on the PATH; install one, or choose a "
        "name that ends with .html"
    )


def render(html: str, suffix: str, option: str) -> bytes:
    """The page as the browser prints or shows it, in light colors.

    Args:
      html: the page.
      suffix: ``.pdf``: all of it, on pages of paper; ``.png``: one image of the page's height.
      option: of `browser`.

    Raises:
      InputError: there is no browser, or it fails.
    """
    with tempfile.TemporaryDirectory(prefix="jaxcnn-") as folder:
        page, out = Path(folder) / "report.html", Path(folder) / f"report{suffix}"
        page.write_text(html, "utf-8")
        command = [browser(option), "--headless", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={SCALE}"]
        command += [f"--virtual-time-budget={_VIRTUAL_MILLISECONDS}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # as root it starts with no sandbox only
        if suffix == ".pdf":
            command.append(f"--window-size={PAPER_WIDTH},800")
            action = ["--no-pdf-header-footer", f"--print-to-pdf={out}"]
        else:
            text = _run([*command, f"--window-size={WIDTH},800", "--dump-dom", str(page)], option)
            height = max(map(int, _HEIGHT.findall(text)), default=800)
            action = [f"--window-size={WIDTH},{height}", f"--screenshot={out}"]
        _run([*command, *action, str(page)], option)
        if not out.exists():
            raise InputError(
                f"{option}: the browser wrote nothing; choose a name ending with .html"
            )
        return out.read_bytes()


def _run(command: list[str], option: str) -> str:
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"{option}: {command[0]} failed ({type(error).__name__}); choose a name that ends with "
            ".html, and print it from a browser"
        ) from error
    return result.stdout
