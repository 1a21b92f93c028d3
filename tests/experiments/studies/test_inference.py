"""Inference: sampling of latencies, and size, latency and accuracy in each precision."""

import os

import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.microbenchmarks import peak
from experiments.microbenchmarks.peak import Peak
from experiments.studies import inference
from jaxcnn import backend
from tests.support.forked import run_python
from tests.support.records import read_records

DEVICE = ["--study=inference", "--device=cpu:1"]
SMALL = [*DEVICE, "--model=logistic", "--dataset=digits", "--epochs=2"]


@pytest.fixture(autouse=True)
def fixed_peak(monkeypatch):
    """Replaces the measured peak, which takes seconds and is tested elsewhere."""
    monkeypatch.setattr(peak, "measure_peak", lambda *_, **__: Peak(1e9, 1e9, 512, None))


def records_by_case(results) -> dict[tuple[str, int], dict]:
    """Records by precision and batch size."""
    return {
        (record["settings"]["precision"], record["settings"]["batch_size"]): record
        for record in read_records(results, "inference")
    }


class FakeClock:
    """A clock on which time passes only in calls, which take the given seconds.

    The last duration is repeated.
    """

    def __init__(self, *durations: float):
        self.now, self.durations, self.calls = 0.0, durations, 0

    def call(self) -> None:
        self.now += self.durations[min(self.calls, len(self.durations) - 1)]
        self.calls += 1

    def __call__(self) -> float:
        return self.now


def test_every_call_after_the_warm_up_is_a_sample():
    clock = FakeClock(*[5.0] * 10, 1.0, 3.0, 1.0)
    samples = inference.sample_latencies(clock.call, 100.0, clock=clock, min_calls=100)
    assert samples == [1.0, 3.0, *[1.0] * 98]


@pytest.mark.parametrize(
    ("budget", "limits", "samples", "calls"),
    [
        (20.0, {"min_calls": 100}, 100, 110),
        (2.0, {"min_calls": 100}, 10, 13),  # five budgets, after a warm-up of more than one
        (1e9, {"max_calls": 50}, 50, 60),
    ],
    ids=["minimum", "too slow for the minimum", "maximum"],
)
def test_the_number_of_samples_is_limited(budget, limits, samples, calls):
    clock = FakeClock(1.0)
    assert len(inference.sample_latencies(clock.call, budget, clock=clock, **limits)) == samples
    assert clock.calls == calls


def test_every_precision_has_its_size_latency_and_accuracy(tmp_path, capsys):
    assert run.main([*SMALL, "--batch-size=4", f"--results={tmp_path}"]) == 0
    records = records_by_case(tmp_path)
    assert records.keys() == {("float32", 4), ("bfloat16", 4), ("int8", 4)}
    float32_accuracy = records["float32", 4]["metrics"]["test_accuracy"]
    # 784 × 10 weights and 10 biases. In int8, the biases and 10 scales of the weights have four
    # bytes each, and so has the scale of the input.
    sizes = {"float32": 31_400, "bfloat16": 15_700, "int8": 7_840 + 40 + 40 + 4}
    dtypes = {"float32": "float32", "bfloat16": "bfloat16", "int8": "float32"}
    for (precision, _), record in records.items():
        metrics = record["metrics"]
        assert metrics["model_bytes"] == sizes[precision]
        assert record["provenance"]["dtype"] == dtypes[precision]
        assert metrics["latency_p50"] <= metrics["latency_p90"] <= metrics["latency_p99"]
        assert metrics["images_per_second"] == pytest.approx(4 / metrics["latency_p50"])
        assert metrics["flops_per_call"] == 2 * 7840 * 4, "FLOPs do not depend on the precision"
        accuracy_loss = float32_accuracy - metrics["test_accuracy"]
        assert metrics["accuracy_loss"] == pytest.approx(accuracy_loss)
        assert len(record["samples"]["latency"]) >= inference.MIN_CALLS
    assert records["int8", 4]["provenance"]["quantized_layers"] == ["out"]
    assert abs(records["int8", 4]["metrics"]["accuracy_loss"]) < 0.02
    output = capsys.readouterr().out
    assert "99th-percentile latency" in output and "logistic in int8" in output
    assert "computed in float32, exactly" in output


def test_a_checkpoint_has_the_accuracy_of_its_training_run(tmp_path):
    model = ["--model=mlp:32", "--dataset=digits", f"--results={tmp_path}"]
    assert run.main(["--study=train", "--device=cpu:1", *model, "--epochs=1"]) == 0
    (trained,) = read_records(tmp_path, "train")
    (checkpoint,) = (tmp_path / "train").glob("*.checkpoints")
    assert run.main([*DEVICE, *model, "--batch-size=2", f"--init-from={checkpoint}"]) == 0
    records = records_by_case(tmp_path)
    test_accuracy = trained["metrics"]["test_accuracy"]
    assert records["float32", 2]["metrics"]["test_accuracy"] == pytest.approx(
        test_accuracy, abs=1e-6
    )
    assert records["float32", 2]["settings"]["init_from"] == str(checkpoint)
    assert "training" not in records["int8", 2]["settings"]


def test_cases_are_all_precisions_and_batch_sizes_that_fit():
    devices = backend.select("cpu")
    quick = inference.cases(RunConfig(), devices)
    points = [(case.settings["precision"], case.settings["batch_size"]) for case in quick]
    assert points[:4] == [("float32", 1), ("float32", 8), ("float32", 32), ("bfloat16", 1)]
    assert len(quick) == 9 and quick[0].settings["training"]["epochs"] == 5
    full = inference.cases(RunConfig(preset="full", model="resnet50"), devices)
    # 2²⁶ elements are 446 images of 224×224×3
    assert max(case.settings["batch_size"] for case in full) == 256
    assert full[0].settings["training"]["epochs"] == 30


@pytest.mark.slow
def test_eight_bits_cost_less_than_one_percent_on_mnist(tmp_path, tfds_dir):
    model = ["--model=mnist_cnn", "--dataset=mnist", f"--data-dir={tfds_dir}"]
    options = [*DEVICE, *model, "--epochs=1", "--batch-size=32", f"--results={tmp_path}"]
    # Programs that train for a minute are optimized.
    environment = os.environ | {"XLA_FLAGS": ""}
    done = run_python(["-m", "experiments.run", *options], environment=environment)
    assert done.returncode == 0, done.stderr
    records = records_by_case(tmp_path)
    assert records["float32", 32]["metrics"]["test_accuracy"] > 0.96
    assert records["int8", 32]["metrics"]["accuracy_loss"] < 0.01
    layers = records["int8", 32]["provenance"]["quantized_layers"]
    assert layers == ["conv1", "conv2", "dense", "out"]
