"""The command lines of the benchmarks."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import samples, throughput_costs
from experiments.records import Record, load, to_json
from jaxcnn import backend
from jaxcnn.errors import InputError
from tests.support.clock import Clock

FOLDER = Path(__file__).parents[1] / "benchmarks"
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_refused_before_anything_is_measured(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, "--resutls=x"])
    benchmark = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(InputError, match="unknown option --resutls"):
        benchmark.main()


def test_a_call_is_slow_or_not_after_it_has_compiled(monkeypatch):
    """In seconds: what compiles for 30, what is quick, and what is slow at every call."""
    clock = Clock()
    monkeypatch.setattr(samples, "time", SimpleNamespace(perf_counter=clock))
    durations = {"compiled": [30, 2, 1], "quick": [0.5], "slow": [7, 6]}
    counts = dict.fromkeys(durations, 0)

    def call_of(name):
        def call():
            of_name = durations[name]
            clock.now += of_name[min(counts[name], len(of_name) - 1)]
            counts[name] += 1

        return call

    times = samples.sample({name: call_of(name) for name in durations}, rounds=3)
    assert times == {"compiled": [1] * 3, "quick": [0.5] * 3, "slow": [6]}
    assert counts == {"compiled": 5, "quick": 5, "slow": 2}


def test_records_may_be_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["benchmark", "--results=~/measured"])
    folder = samples.results_folder("benchmarks.lowerings")
    assert folder == str(tmp_path / "measured") and Path(folder).is_dir()
    for results in (folder, "~/measured"):
        samples.write(results, "lowerings", backend.select("cpu:1"), 0, {"loop": "no"}, {})
    assert len(list((tmp_path / "measured" / "benchmarks" / "lowerings").iterdir())) == 2


def test_bad_input_is_one_line_and_exit_code_2():
    command = [sys.executable, "-m", "benchmarks.estimates", "--models=lenet55"]
    result = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "unknown model 'lenet55': did you mean 'lenet5'?" in line


def test_a_file_of_records_is_estimated_again(tmp_path):
    """Records without operations stay as they are, and so does a file without a change."""
    path = tmp_path / "records.json"
    settings = {
        "target": "gpu-h100",
        "model": "lenet5",
        "batch_size": 8,
        "image_size": 32,
        "precision": "bfloat16",
        "strategy": "jit",
    }
    origin = {"time": "2026-11-27", "epoch_images": 100, "remarks": []}
    origin |= {"state": "compiled", "collectives": []}
    known = origin | {"operations": [["elementwise", 0, 10**9, 0, 1]]}
    old = {"step_time_estimate": 7.0, "flops_per_step": 10**6, "bytes_per_step": 10**9}
    rows = [
        Record("preflight", "a", "predicted", "", settings, old, provenance=known),
        Record("preflight", "b", "predicted", "", settings, old, provenance=origin),
    ]
    path.write_text(json.dumps([to_json(row) for row in rows]))
    throughput_costs.estimate_again(path)
    first, second = load([path])[0]
    # 1 GB at 3.35 TB/s, and somewhat more
    assert 3e-4 < first.metrics["step_time_estimate"] < 9e-4
    assert second == rows[1]
    path.write_text(json.dumps([to_json(first), to_json(second)], indent=3))
    text = path.read_text()
    throughput_costs.estimate_again(path)
    assert path.read_text() == text
