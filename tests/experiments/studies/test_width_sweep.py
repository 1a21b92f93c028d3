"""The dropout MLP at every width: what a case measures, and a study that is killed and started again."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from etils import epath
from rich.console import Console

from experiments.analysis.crossover import TERMS
from experiments.config import RunConfig
from experiments.harness.study import CaseResult, Context
from experiments.records import Record
from experiments.records.metrics import METRICS
from experiments.studies import width_sweep
from jaxcnn.backend import Backend

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


@pytest.fixture
def few_images(monkeypatch):
    monkeypatch.setitem(width_sweep.IMAGES, "quick", 100)
    monkeypatch.setitem(width_sweep.BUDGETS, "quick", 0.01)


def measured(config: RunConfig, tmp_path) -> CaseResult:
    case = width_sweep.cases(config, CPU)[0]
    return width_sweep.measure(case, Context(CPU, epath.Path(tmp_path), Console()))


def test_the_cases_are_powers_of_two_and_the_recipe_is_the_lessons():
    quick, full = (width_sweep.cases(RunConfig(preset=preset), CPU) for preset in ("quick", "full"))
    assert [case.config.model for case in full] == [f"mlp:{2**i}" for i in range(3, 14)]
    assert {case.config.model for case in quick} < {case.config.model for case in full}
    assert quick[-1].config.model == "mlp:512"
    settings = quick[0].settings
    assert (settings["optimizer"], settings["learning_rate"], settings["batch_size"]) == (
        "rmsprop",
        1e-3,
        128,
    )
    assert full[0].settings["images"] == 60_000


def test_a_case_times_training_copying_and_compiling_apart(few_images, tmp_path):
    found = measured(RunConfig(batch_size=16), tmp_path)
    metrics = found.metrics
    assert metrics.keys() <= METRICS.keys()
    # 784 and 1 numbers a unit of the first layer, 32 and 1 of the second and of the third
    assert metrics["parameters"] == 785 * 32 + 33 * 32 + 33 * 10
    # 100 images make 6 steps; products of three layers forward, backward to the weights, and to what the upper two read
    assert metrics["training_time"] == pytest.approx(6 * metrics["step_time"])
    assert metrics["flops_per_step"] == 2 * 16 * (2 * 784 * 32 + 3 * 32 * 32 + 3 * 32 * 10)
    parts = [metrics[name] for name in TERMS["with compiling and the copy of the images"]]
    assert metrics["setup_and_training_time"] == pytest.approx(sum(parts)) and min(parts) > 0
    assert metrics["step_time_low"] <= metrics["step_time"] <= metrics["step_time_high"]
    for name in ("training_time", "copy_time"):
        assert len(found.samples[name]) >= 7 and min(found.samples[name]) <= metrics[name] <= max(
            found.samples[name]
        )


def test_an_epoch_trains(few_images):
    """What is timed is a training run: its state goes on, and its losses are those of an untrained network to begin with."""
    from experiments.workloads import synthetic_step
    from jaxcnn import models, parallel, training
    from jaxcnn.data.augment import make_preprocess
    from jaxcnn.data.resident import ResidentFeed

    images = synthetic_step.noise_batch(64, (28, 28, 1), 10)
    optimizer = training.optimizer("sgd", 0.01, "constant", steps=1, steps_per_epoch=1)
    state, step = training.create(models.build("mlp:8"), optimizer, preprocess=make_preprocess())
    strategy = parallel.strategy("jit", CPU.devices)
    epoch = width_sweep.Epoch(strategy.place(state), strategy.place_data(images), 4)
    assert (
        epoch.compile(
            strategy.compile(training.multi_step(step, ResidentFeed(64, 16)), resident=True)
        )
        > 0
    )
    losses = jax.device_get(epoch()["loss"]) / 16
    assert losses.shape == (4,) and abs(losses[0] - math.log(10)) < 1
    assert int(epoch.state.step) == 4
    epoch()
    assert int(epoch.state.step) == 8


def test_compiling_is_timed_though_it_was_done_before(few_images, tmp_path):
    hits: list[str] = []
    jax.monitoring.register_event_listener(listener := lambda event, **_: hits.append(event))
    before = jax.config.jax_enable_compilation_cache
    try:
        with width_sweep._no_cache():
            jax.jit(lambda x: x * 3 + 1).lower(1.0).compile()
        inside = [
            event
            for event in hits
            if event.endswith(("cache_hits", "cache_misses", "compile_requests_use_cache"))
        ]
        assert inside == [] and jax.config.jax_enable_compilation_cache == before
        jax.jit(lambda x: x * 3 + 2).lower(1.0).compile()
        assert any(event.endswith("compile_requests_use_cache") for event in hits), "on again"
    finally:
        jax.monitoring.unregister_event_listener(listener)


TINY = """
import sys, time
from experiments import run
from experiments.studies import STUDIES, batch_sweep
from experiments.harness.study import CaseResult, Study

def measure(case, context):
    with open(sys.argv[1] + "/log", "a") as log:
        print(case.config.batch_size, file=log, flush=True)
    time.sleep(0.3)
    return CaseResult({"steps": 1})

batch_sweep.PRESETS["quick"] = batch_sweep.Preset(32, 3, 0.5, 0.1)
STUDIES["tiny"] = Study(about="?", cases=batch_sweep.cases, measure=measure, columns=("steps",), next_cases=batch_sweep.next_cases)
sys.exit(run.main(["--study=tiny", "--device=cpu:1", "--preset=quick", "--results=" + sys.argv[1]]))
"""


def start(code: str, results: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", code, str(results)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def kill_after(process: subprocess.Popen, folder: Path, records: int) -> None:
    """Kills the process and all that it started as soon as so many records are there."""
    deadline = time.monotonic() + 240
    while len(list(folder.glob("*.json"))) < records:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def check(folder: Path, before: dict[Path, int], expected: int) -> list[Record]:
    """Every case once, what was there before untouched, nothing half written; the records."""
    files = sorted(folder.glob("*.json"))
    found = [Record(**json.loads(path.read_text())) for path in files]
    assert len(found) == expected == len({record.case for record in found})
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {record.status for record in found} == {"ok"}
    return found


def test_a_study_killed_in_the_middle_completes_with_every_case_once(tmp_path):
    process, folder = start(TINY, tmp_path), tmp_path / "tiny"
    kill_after(process, folder, 2)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 2 <= len(before) < 4
    again = start(TINY, tmp_path)
    output, _ = again.communicate(timeout=240)
    assert again.returncode == 0, output
    found = check(folder, before, 4)
    assert sorted(record.settings["batch_size"] for record in found) == [32, 64, 128, 256]
    log = list(map(int, (tmp_path / "log").read_text().split()))
    assert set(log) == {32, 64, 128, 256} and len(log) <= 5, (
        "only the case in hand was measured again"
    )


WIDTHS = """
import sys
from experiments import run
from experiments.studies import width_sweep
width_sweep.WIDTHS["quick"], width_sweep.IMAGES["quick"] = [1, 2, 3], 256
sys.exit(run.main(["--study=width_sweep", "--device=cpu:1", "--results=" + sys.argv[1]]))
"""


@pytest.mark.slow
def test_the_width_sweep_killed_in_the_middle_completes_with_every_case_once(tmp_path):
    process, folder = start(WIDTHS, tmp_path), tmp_path / "width_sweep"
    kill_after(process, folder, 1)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    again = start(WIDTHS, tmp_path)
    output, _ = again.communicate(timeout=240)
    assert again.returncode == 0, output
    found = check(folder, before, 3)
    assert {record.settings["model"] for record in found} == {"mlp:1", "mlp:2", "mlp:3"}
