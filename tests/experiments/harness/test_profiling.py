"""The trace of some train steps after a training run."""

import contextlib
import gzip
import json
import types

import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.harness import profiling
from jaxcnn import backend
from jaxcnn.errors import InputError

SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:700",
    "--epochs=2",
    "--batch-size=20",
]


def only_record(results) -> dict:
    (path,) = (results / "train").glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("pipeline", ["--pipeline=resident", "--pipeline=streamed"])
def test_a_profile_traces_steps_beyond_the_measured_ones(tmp_path, capsys, pipeline):
    assert run.main([*SMALL, pipeline, "--workers=0", f"--results={tmp_path}", "--profile"]) == 0
    record = only_record(tmp_path)
    # 560 training images less 56 make 25 batches of 20
    assert record["metrics"]["steps"] == 50 == sum(record["samples"]["dispatch_steps"])
    (trace,) = (tmp_path / "train" / f"{record['case']}.profile").glob(
        "plugins/profile/*/*.trace.json.gz"
    )
    (space,) = trace.parent.glob("*.xplane.pb")
    names = [
        event.get("name")
        for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    ]
    assert names.count("train") == profiling.DISPATCHES and b"step_num" in space.read_bytes()
    output = capsys.readouterr().out
    assert "3 dispatches of 5 train steps" in output
    assert f"xprof --logdir={trace.parents[3]}, or open {trace.name} in ui.perfetto.dev" in output


def test_the_traced_dispatches_stay_within_an_epoch(tmp_path):
    counts = []

    def run_steps(state, step, count):
        counts.append(count)
        return state, {}

    from jaxcnn.training import FitConfig

    context = types.SimpleNamespace(
        console=types.SimpleNamespace(print=lambda *args, **options: None)
    )
    context.scratch = tmp_path / "c.checkpoints"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            profiling.jax.profiler,
            "trace",
            lambda folder, profiler_options: contextlib.nullcontext(),
        )
        for steps in (1, 11, 500):
            profiling.trace(run_steps, None, FitConfig(1, steps), context)
    assert counts == [1] * 4 + [2] * 4 + [5] * 4  # four dispatches of two steps fit into 11


def test_the_measurements_stand_if_the_profiler_fails(tmp_path, capsys, monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("[CUPTI] insufficient privileges")

    monkeypatch.setattr(profiling.jax.profiler, "trace", fail)
    assert run.main([*SMALL, f"--results={tmp_path}", "--profile"]) == 0
    assert only_record(tmp_path)["status"] == "ok"
    assert "no profile: RuntimeError: [CUPTI] insufficient privileges" in capsys.readouterr().out


def test_check_rejects_libtpu_without_a_tpu(monkeypatch):
    cpu = backend.Backend("cpu", ())
    monkeypatch.setattr(
        profiling,
        "importlib",
        types.SimpleNamespace(util=types.SimpleNamespace(find_spec=lambda name: object())),
    )
    monkeypatch.setattr(
        profiling, "jax", types.SimpleNamespace(config=types.SimpleNamespace(jax_platforms=None))
    )
    profiling.check(RunConfig(), cpu)
    with pytest.raises(InputError, match="name the device: --device=cpu"):
        profiling.check(RunConfig(profile=True), cpu)
    profiling.jax.config.jax_platforms = "cpu"
    profiling.check(RunConfig(profile=True), cpu)
