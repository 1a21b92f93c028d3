"""Running a command in a cell."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from experiments import colab
from experiments.colab import cells


def write_module(source: str, monkeypatch, tmp_path) -> str:
    """Writes a module that `run_module` can run; returns its name."""
    (tmp_path / "example.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "example"


def test_output_is_shown_and_only_a_failed_case_does_not_stop(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in Jupyter
    source = (
        "import os, sys\n"
        "print('×', sys.argv[1:], os.environ.get('FORCE_COLOR'))\n"
        "print('error', file=sys.stderr)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    name = write_module(source, monkeypatch, tmp_path)
    for code in (0, 1):
        colab.run_module(name, code, Path("x"))
        assert capsys.readouterr().out == f"× ['{code}', 'x'] None\nerror\n"
    with pytest.raises(colab.Stopped, match="example ended with exit code 2: error"):
        colab.run_module(name, 2)


def test_an_interrupted_command_may_finish(monkeypatch, tmp_path, capsys):
    source = (
        "import sys, time\n"
        "print('started')\n"
        "try:\n"
        "    open('ready', 'w').close()\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(0.1)\n"
        "    print('saved')\n"
        "    sys.exit(130)\n"
    )
    name = write_module(source, monkeypatch, tmp_path)
    processes, popen = [], subprocess.Popen

    def start(*args, **kwargs):
        processes.append(popen(*args, **kwargs))
        return processes[0]

    def show(line, end):  # interrupts after the first line, as Jupyter does: notebook and process
        print(line, end=end)
        if line != "started\n":
            return
        while not Path("ready").exists():
            time.sleep(0.01)
        processes[0].send_signal(signal.SIGINT)
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "print", show, raising=False)
    monkeypatch.setattr(cells.subprocess, "Popen", start)
    with pytest.raises(colab.Stopped, match="exit code 130: saved"):
        colab.run_module(name)
    assert capsys.readouterr().out == "started\nsaved\n"


def test_a_stop_is_one_line_in_place_of_a_traceback():
    assert colab.Stopped("no more")._render_traceback_() == ["Stopped: no more"]


@pytest.mark.parametrize("device", ["tpu", "gpu:2"])
def test_the_cpu_trains_the_same_with_the_same_options(device, monkeypatch):
    commands = []
    monkeypatch.setattr(cells, "run_module", lambda *command: commands.append(command))
    colab.train_on_cpu(device, "kernels,train", "--preset=quick", "--epochs=2")
    assert commands == [
        ("experiments.run", "--study=train", "--device=cpu", "--preset=quick", "--epochs=2")
    ]


@pytest.mark.parametrize(
    ("device", "studies"), [("cpu", "train"), ("cpu:8", "train"), ("tpu", "x")]
)
def test_without_a_training_on_an_accelerator_the_cpu_has_nothing_to_do(
    device, studies, monkeypatch
):
    monkeypatch.setattr(cells, "run_module", lambda *command: pytest.fail(str(command)))
    colab.train_on_cpu(device, studies)


def test_a_cpu_that_cannot_train_does_not_stop_the_notebook(monkeypatch, capsys):
    def refuse(*command):
        raise colab.Stopped("experiments.run ended with exit code 130: interrupted")

    monkeypatch.setattr(cells, "run_module", refuse)
    colab.train_on_cpu("tpu", "train")
    reason = "experiments.run ended with exit code 130: interrupted"
    assert capsys.readouterr().out == f"not compared with the CPU: {reason}\n"
