"""The program of docs/library.md, on eight devices: what it prints, at first and when resumed."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "library.md").read_text()
PROGRAM = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]


def run_program(folder) -> str:
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | devices,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_is_short():
    assert len(PROGRAM.splitlines()) < 60


@pytest.mark.slow
def test_the_program_learns_and_finds_its_checkpoint_when_it_is_started_again(tmp_path):
    first = run_program(tmp_path)
    epochs, best = re.search(r"^epochs (\d+) best ([\d.]+)$", first, re.MULTILINE).groups()
    (accuracy,) = re.findall(r"^test \{'accuracy': ([\d.]+), 'loss': ", first, re.MULTILINE)
    (of_module,) = re.findall(r"^accuracy of the module ([\d.]+)$", first, re.MULTILINE)
    assert int(epochs) == 8 and float(best) > 0.9 and float(accuracy) > 0.9
    # of 90 images, the last 10 in a partial batch; the module is computed by other programs
    assert float(of_module) == pytest.approx(float(accuracy), abs=1.01 / 90)
    assert run_program(tmp_path) == first
