"""What every command does with its streams, and with errors that it did not expect."""

import os
import subprocess
import sys

import pytest

from experiments.cli import FAILED, INTERRUPTED, OK, WORSE, run_command
from jaxcnn.errors import InputError

PRINTS = "from experiments.cli import run_command; import sys; sys.exit(run_command({}))"
TEXT = "lambda console: console.print('3 × ☃ ' + chr(0xdcff)) or 0"


def run(code: str, redirection: str, **variables: str) -> subprocess.CompletedProcess:
    """Runs code in a process whose streams a shell redirects."""
    command = f'exec {sys.executable} -c "$CODE" {redirection}'
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        env=os.environ | {"CODE": PRINTS.format(code)} | variables,
    )


@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [
        (">&-", OK, ""),
        (">&- 2>&- <&-", OK, ""),
        ("2>&-", OK, ""),
        (">/dev/full", FAILED, "error: No space left on device; make room"),
    ],
    ids=["no stdout", "no stream", "no stderr", "full disk"],
)
def test_closed_and_full_streams(redirection, code, error):
    done = run(TEXT, redirection)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(error) and done.stderr.count("\n") == bool(error)


def test_a_terminal_without_unicode_gets_escapes():
    done = run(TEXT, "", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (OK, "3 \\xd7 \\u2603 \\udcff\n")
    done = run(TEXT, "", PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stdout) == (OK, "3 × ☃ \\udcff\n")


def raises(error: BaseException):
    def command(console):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("a\x1b[31m\nb"), 2, "error: a\ufffd[31m b\n"),
        (KeyError("x"), FAILED, "error: KeyError: 'x' -- a defect of this program: "),
        (PermissionError(13, "Permission denied", "/x"), FAILED, "error: Permission denied (/x); "),
        (KeyboardInterrupt(), INTERRUPTED, "interrupted; the same command starts again"),
    ],
)
def test_every_error_is_one_line_and_a_code(error, code, message, capsys, monkeypatch):
    monkeypatch.delenv("JAXCNN_TRACEBACK", raising=False)
    assert run_command(raises(error)) == code
    written = capsys.readouterr().err
    assert written.startswith(message) and written.count("\n") == 1


def test_the_traceback_of_a_defect_can_be_shown(capsys, monkeypatch):
    monkeypatch.setenv("JAXCNN_TRACEBACK", "1")
    assert run_command(raises(KeyError("x"))) == FAILED
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_exit_codes_differ():
    assert len({OK, FAILED, 2, WORSE, INTERRUPTED}) == 5
