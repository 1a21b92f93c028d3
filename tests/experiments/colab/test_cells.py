"""Running a command in a cell, and showing a page."""

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


def test_a_page_has_a_frame_and_an_origin_of_its_own(monkeypatch, tmp_path):
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    (tmp_path / "page.html").write_text('<script>"quoted" & more</script>')
    colab.show_page(tmp_path / "page.html", height=300)
    (frame,) = displayed
    assert 'sandbox="allow-scripts allow-downloads"' in frame.data  # without allow-same-origin
    page = "&lt;script&gt;&quot;quoted&quot; &amp; more&lt;/script&gt;"
    assert f'srcdoc="{page}"' in frame.data and "height: 300px" in frame.data


def test_a_stop_is_one_line_in_place_of_a_traceback():
    assert colab.Stopped("no more")._render_traceback_() == ["Stopped: no more"]
