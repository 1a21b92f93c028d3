"""The command lines of the benchmarks."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from jaxcnn.errors import InputError

FOLDER = Path(__file__).parents[1] / "benchmarks"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_refused_before_anything_is_measured(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, "--resutls=x"])
    benchmark = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(InputError, match="unknown option --resutls"):
        benchmark.main()


def test_bad_input_is_one_line_and_exit_code_2():
    command = [sys.executable, "-m", "benchmarks.estimates", "--models=lenet55"]
    result = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "unknown model 'lenet55': did you mean 'lenet5'?" in line
