"""All commands as one program."""

import contextlib
import importlib
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

import jaxcnn
from experiments.__main__ import COMMANDS, main, start
from jaxcnn import allocation
from tests.support.paths import ROOT

# What pip writes as the script, but for the name of the file.
SCRIPT = "import sys; sys.argv[0] = '/somewhere/bin/jaxcnn'; from experiments.__main__ import start"


def script(*arguments: str, code: str = "start()") -> subprocess.CompletedProcess:
    """Calls the console script."""
    return subprocess.run(
        [sys.executable, "-c", f"{SCRIPT}\n{code}", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )


def test_the_script_is_declared():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert EntryPoint("jaxcnn", scripts["jaxcnn"], "console_scripts").load() is start


def test_the_version_needs_no_library(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxcnn {jaxcnn.__version__}\n"
    watched = "('jax', 'numpy', 'tyro', 'rich')"
    code = f"main(['--version']); print([m for m in {watched} if m in sys.modules])"
    done = script(code=f"from experiments.__main__ import main; {code}")
    assert done.stdout.splitlines()[1:] == ["[]"], done.stderr


def test_help_names_every_command_in_a_line(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, command in COMMANDS.items():
        assert f"{name:<11}{command.about}" in lines
        assert callable(importlib.import_module(command.module).main)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reprot"], "unknown command 'reprot': did you mean 'report'? Known: run, report, "),
        (["--study=train"], "--study=train: the command comes first: one of run, report, "),
        ([], "a command must be given: one of run, report, "),
        (["run", "--modle=mlp"], "unknown option --modle: did you mean --model? "),
        (["info", "--verbose"], "python -m jaxcnn.info has no options: '--verbose' was given"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and not output


@pytest.mark.parametrize(
    ("path", "arguments", "usage"),
    [
        ("/bin/jaxcnn", ["export", "--help"], "usage: jaxcnn export [-h] "),
        ("/bin/jaxcnn", ["info", "--help"], "usage: jaxcnn info [-h]"),
        ("/bin/jaxcnn", ["--help"], "usage: jaxcnn COMMAND "),
        ("/x/experiments/__main__.py", ["run", "--help"], "usage: python -m experiments run [-h] "),
        ("/x/experiments/__main__.py", ["--help"], "usage: python -m experiments COMMAND "),
    ],
)
def test_usage_is_as_the_program_was_called(path, arguments, usage, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [path])
    with contextlib.suppress(SystemExit):
        main(arguments)
    assert capsys.readouterr().out.startswith(usage)


def test_exit_codes_and_messages_are_passed_on():
    done = script("report", "--results", "nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --results=nowhere: no such folder")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_script_from_the_start(number):
    """While the module of a command is imported."""
    code = (
        "import experiments.__main__ as m, os\n"
        f"m.importlib.import_module = lambda name: os.kill(os.getpid(), {int(number)})\n"
        "start()"
    )
    done = script("export", code=code)
    assert done.returncode == 130 and done.stderr.strip().startswith("interrupted; ")


def test_a_reader_that_leaves_is_no_error():
    command = f'"{sys.executable}" -m experiments info | head -n 1'
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.stdout.startswith("jaxcnn: ") and "Traceback" not in done.stderr


def test_freed_memory_is_kept_by_run_alone(monkeypatch):
    calls = []
    module = SimpleNamespace(main=lambda arguments: calls.append(arguments) or 0)
    fake = SimpleNamespace(import_module=lambda name: module)
    monkeypatch.setattr(allocation, "keep_freed_memory", lambda: calls.append("kept"))
    monkeypatch.setattr("experiments.__main__.importlib", fake)
    assert main(["export", "x"]) == main(["run"]) == 0
    assert calls == [["x"], "kept", []]


FIRST_LINES = [
    (["run", "--study=train,kernels", "--json"], "--study=train,kernels"),
    (["run", "--dry-run"], "--study=train,kernels"),
    (["preflight", "--target=cpu"], "--target=cpu"),
    (["predict", "--weights=w", "a.png"], "--weights=w"),
    (["export", "--weights=w", "--out={tmp}/w.safetensors"], "--weights=w"),
    (["compare", "--interleave", "no-such", "version"], "--interleave no-such version"),
]


@pytest.mark.parametrize(("arguments", "what"), FIRST_LINES, ids=lambda value: value[0])
def test_the_first_line_comes_before_any_import_that_takes_a_while(arguments, what, tmp_path):
    """All of JAX and Flax fail to be imported."""
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    code = "sys.modules['jax'] = sys.modules['flax'] = None; start()"
    done = script(*arguments, code=code)
    on_stderr = "--json" in arguments or "--interleave" in arguments
    line = f"jaxcnn {jaxcnn.__version__}: starting {what}"
    first, other = (done.stderr, done.stdout) if on_stderr else (done.stdout, done.stderr)
    assert first.splitlines()[0] == line and line not in other
