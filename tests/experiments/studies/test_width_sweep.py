"""The width sweep: its cases and metrics, and a study that is killed and started again."""

import json
import math
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from rich.console import Console

from experiments.analysis.crossover import TERMS
from experiments.config import RunConfig
from experiments.harness.study import Context
from experiments.records import Record
from experiments.records.metrics import METRICS
from experiments.studies import width_sweep
from experiments.workloads import synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.errors import InputError
from tests.support.forked import ForkedPython

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


@pytest.fixture
def few_images(monkeypatch):
    monkeypatch.setitem(width_sweep.IMAGES, "quick", 100)
    monkeypatch.setitem(width_sweep.BUDGETS, "quick", 0.01)


def test_the_widths_are_powers_of_two_and_the_recipe_is_the_published_one():
    quick, full = (width_sweep.cases(RunConfig(preset=preset), CPU) for preset in ("quick", "full"))
    full_models = [case.config.model for case in full]
    quick_models = [case.config.model for case in quick]
    assert full_models == [f"mlp:{2**i}" for i in range(3, 14)]
    assert set(quick_models) < set(full_models) and quick_models[-1] == "mlp:512"
    recipe = {"optimizer": "rmsprop", "learning_rate": 1e-3, "batch_size": 128}
    assert recipe.items() <= quick[0].settings.items()
    assert full[0].settings["images"] == 60_000


def test_a_batch_larger_than_an_epoch_is_rejected():
    with pytest.raises(InputError, match=r"--batch-size=4096: .* 2560 images"):
        width_sweep.cases(RunConfig(batch_size=4096), CPU)


def test_training_copying_and_compiling_are_timed_separately(few_images, tmp_path):
    case = width_sweep.cases(RunConfig(batch_size=16), CPU)[0]
    result = width_sweep.measure(case, Context(CPU, epath.Path(tmp_path), Console()))
    metrics = result.metrics
    assert metrics.keys() <= METRICS.keys()
    # Weights and biases of three layers with 784, 32 and 32 inputs.
    assert metrics["parameters"] == 785 * 32 + 33 * 32 + 33 * 10
    # 100 images are 6 batches. Each layer has a product in the forward pass and one for the
    # gradient of its weights; the upper two layers have a third, for the gradient of their inputs.
    assert metrics["training_time"] == pytest.approx(6 * metrics["step_time"])
    assert metrics["flops_per_step"] == 2 * 16 * (2 * 784 * 32 + 3 * 32 * 32 + 3 * 32 * 10)
    parts = [metrics[name] for name in TERMS["with compiling and the copy of the images"]]
    assert metrics["setup_and_training_time"] == pytest.approx(sum(parts)) and min(parts) > 0
    assert metrics["step_time_low"] <= metrics["step_time"] <= metrics["step_time_high"]
    for name in ("training_time", "copy_time"):
        samples = result.samples[name]
        assert len(samples) >= 7 and min(samples) <= metrics[name] <= max(samples)


def test_an_epoch_trains():
    """The state advances from call to call; the first losses are those of an untrained network."""
    images = synthetic_step.noise_batch(64, (28, 28, 1), 10) | {"seed": np.uint32(0)}
    optimizer = training.optimizer("sgd", 0.01, "constant", steps=1, steps_per_epoch=1)
    state, step = training.create(models.build("mlp:8"), optimizer, preprocess=make_preprocess())
    strategy = parallel.strategy("jit", CPU.devices)
    epoch = width_sweep.Epoch(strategy.place(state), strategy.place_data(images), 4)
    run_steps = training.multi_step(step, ResidentFeed(64, 16))
    assert epoch.compile(strategy.compile(run_steps, resident=True)) > 0
    losses = jax.device_get(epoch()["loss"]) / 16
    assert losses.shape == (4,) and abs(losses[0] - math.log(10)) < 1
    assert int(epoch.state.step) == 4
    epoch()
    assert int(epoch.state.step) == 8


def test_compiling_is_timed_without_the_cache():
    events: list[str] = []
    jax.monitoring.register_event_listener(listener := lambda event, **_: events.append(event))
    enabled = jax.config.jax_enable_compilation_cache
    names = ("cache_hits", "cache_misses", "compile_requests_use_cache")
    try:
        with width_sweep._compilation_cache_disabled():
            jax.jit(lambda x: x * 3 + 1).lower(1.0).compile()
        assert not [event for event in events if event.endswith(names)]
        assert jax.config.jax_enable_compilation_cache == enabled
        jax.jit(lambda x: x * 3 + 2).lower(1.0).compile()
        assert any(event.endswith("compile_requests_use_cache") for event in events), (
            "enabled again"
        )
    finally:
        jax.monitoring.unregister_event_listener(listener)


FOUR_BATCHES = """
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
STUDIES["four_batches"] = Study(
    about="?",
    cases=batch_sweep.cases,
    measure=measure,
    columns=("steps",),
    next_cases=batch_sweep.next_cases,
)
options = ["--study=four_batches", "--device=cpu:1", "--preset=quick"]
sys.exit(run.main([*options, "--results=" + sys.argv[1]]))
"""


def start(code: str, results: Path) -> ForkedPython:
    return ForkedPython(["-c", code, str(results)], merged=True)


def kill_after(process: ForkedPython, folder: Path, count: int) -> None:
    """Kills the process group as soon as the folder has this number of records."""
    deadline = time.monotonic() + 240
    while len(list(folder.glob("*.json"))) < count:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def modification_times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}


def check_records(folder: Path, before: dict[Path, int], count: int) -> list[Record]:
    """Every case has exactly one valid record, and the earlier records are unchanged."""
    records = [Record(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    assert len(records) == count == len({record.case for record in records})
    assert before.items() <= modification_times(folder).items()
    assert {record.status for record in records} == {"ok"}
    return records


def resume(code: str, results: Path) -> None:
    process = start(code, results)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output


def test_a_killed_study_resumes_and_measures_every_case_once(tmp_path):
    folder = tmp_path / "four_batches"
    kill_after(start(FOUR_BATCHES, tmp_path), folder, 2)
    before = modification_times(folder)
    assert 2 <= len(before) < 4
    resume(FOUR_BATCHES, tmp_path)
    records = check_records(folder, before, 4)
    assert sorted(record.settings["batch_size"] for record in records) == [32, 64, 128, 256]
    measured = list(map(int, (tmp_path / "log").read_text().split()))
    assert set(measured) == {32, 64, 128, 256}
    assert len(measured) <= 5, "only the interrupted case was measured again"


THREE_WIDTHS = """
import sys
from experiments import run
from experiments.studies import width_sweep
width_sweep.WIDTHS["quick"], width_sweep.IMAGES["quick"] = [1, 2, 3], 256
sys.exit(run.main(["--study=width_sweep", "--device=cpu:1", "--results=" + sys.argv[1]]))
"""


@pytest.mark.slow
def test_a_killed_width_sweep_resumes_and_measures_every_case_once(tmp_path):
    folder = tmp_path / "width_sweep"
    kill_after(start(THREE_WIDTHS, tmp_path), folder, 1)
    before = modification_times(folder)
    resume(THREE_WIDTHS, tmp_path)
    records = check_records(folder, before, 3)
    assert {record.settings["model"] for record in records} == {"mlp:1", "mlp:2", "mlp:3"}
