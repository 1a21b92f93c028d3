"""Answers: how long they take, how many come in time, and what fewer bits cost."""

import json

import numpy as np
import pytest

from experiments import run
from experiments.analysis.latency import conclusion, percentile, percentiles, served_within
from experiments.config import RunConfig
from experiments.microbenchmarks import peak
from experiments.microbenchmarks.peak import Peak
from experiments.records import Record
from experiments.studies import inference
from experiments.workloads import trained_model
from jaxcnn import backend

FEW = ["--study=inference", "--device=cpu:1", "--model=logistic", "--dataset=digits", "--epochs=2"]


@pytest.fixture(autouse=True)
def no_peak(monkeypatch):
    """The measured peak takes seconds and is tested elsewhere."""
    monkeypatch.setattr(peak, "measured", lambda *_, **__: Peak(1e9, 1e9, 512, None))


def found(results) -> dict[tuple[str, int], dict]:
    """Records by precision and batch."""
    records = [json.loads(path.read_text()) for path in (results / "inference").glob("*.json")]
    return {
        (record["settings"]["precision"], record["settings"]["batch_size"]): record
        for record in records
    }


def test_percentiles_are_samples():
    samples = [float(number) for number in range(1, 201)]
    assert percentiles(samples[::-1]) == {
        "latency_p50": 100.0,
        "latency_p90": 180.0,
        "latency_p99": 198.0,
    }
    assert percentile([5.0], 99) == 5.0 and percentile([1.0, 2.0, 3.0], 99) == 3.0
    for bad in (([], 50), ([1.0], 0), ([1.0], 101)):
        with pytest.raises(ValueError, match="needs samples and a share"):
            percentile(*bad)


def record(
    accelerator: str, precision: str, batch: int, p99: float, rate: float, **other
) -> Record:
    return Record(
        **{"study": "inference", "case": "x", "status": "ok"} | other,
        settings={"model": "m", "precision": precision, "batch_size": batch},
        metrics={"latency_p50": batch / rate, "latency_p99": p99, "images_per_second": rate},
        provenance={"accelerator": accelerator, "machine": "one"},
    )


RECORDS = [
    record("CPU", "float32", 1, 0.002, 600.0),
    record("CPU", "float32", 8, 0.010, 1000.0),  # just in time
    record("CPU", "float32", 64, 0.050, 1500.0),
    record("CPU", "int8", 8, 0.012, 900.0),
    record("TPU", "float32", 8, 0.001, 9000.0),
    record("TPU", "float32", 64, 0.003, 30000.0),
    record("TPU", "float32", 512, 0.009, 25000.0),  # in time, and slower
    record("TPU", "float32", 4096, 0.0, 1e9, status="failed"),
    record("TPU", "float32", 4096, 0.0, 1e9, study="train"),
]


def test_the_most_images_a_second_among_the_batches_in_time():
    cpu, int8, tpu = served_within(RECORDS)
    assert (cpu.best.settings["batch_size"], cpu.images_per_second, len(cpu.records)) == (
        8,
        1000.0,
        3,
    )
    assert int8.best is None and int8.images_per_second == 0
    assert (tpu.best.settings["batch_size"], tpu.images_per_second) == (64, 30000.0)
    assert served_within(RECORDS, limit=0.05)[0].images_per_second == 1500
    assert conclusion(RECORDS)[:2] == [
        "m in float32: 1,000 images a second, 99 answers in 100 within 10 ms, in batches of 8",
        "m in int8: no batch of which 99 answers in 100 come within 10 ms",
    ]


class Clock:
    """Time passes in answers alone."""

    def __init__(self, *predictions: float):
        self.now, self.predictions, self.given = 0.0, predictions, 0

    def answer(self) -> None:
        self.now += self.predictions[min(self.given, len(self.predictions) - 1)]
        self.given += 1

    def __call__(self) -> float:
        return self.now


def test_every_answer_is_a_sample_and_the_first_ones_are_none():
    clock = Clock(*[5.0] * 10, 1.0, 3.0, 1.0)
    assert inference.latencies(clock.answer, 100.0, clock=clock, least=100) == [
        1.0,
        3.0,
        *[1.0] * 98,
    ]


def test_at_least_so_many_answers_unless_they_take_too_long():
    clock = Clock(1.0)
    assert len(inference.latencies(clock.answer, 20.0, clock=clock, least=100)) == 100
    clock = Clock(1.0)
    assert (
        len(inference.latencies(clock.answer, 2.0, clock=clock, least=100)) == 10
        and clock.given == 13
    )
    clock = Clock(1.0)
    assert len(inference.latencies(clock.answer, 1e9, clock=clock, most=50)) == 50


def test_three_precisions_by_batches_each_with_what_it_costs(tmp_path, capsys):
    assert run.main([*FEW, "--batch-size=4", f"--results={tmp_path}"]) == 0
    records = found(tmp_path)
    assert records.keys() == {("float32", 4), ("bfloat16", 4), ("int8", 4)}
    # 784 × 10 weights and 10 biases; in int8 the biases and 10 scales in four bytes, and the scale of the input
    sizes = {
        precision: entry["metrics"]["model_bytes"] for (precision, _), entry in records.items()
    }
    assert sizes == {"float32": 31_400, "bfloat16": 15_700, "int8": 7_840 + 40 + 40 + 4}
    for (precision, _), entry in records.items():
        metrics = entry["metrics"]
        assert metrics["latency_p50"] <= metrics["latency_p90"] <= metrics["latency_p99"]
        assert metrics["images_per_second"] == pytest.approx(4 / metrics["latency_p50"])
        assert metrics["flops_per_call"] == 2 * 7840 * 4, "the mathematics is the same"
        assert metrics["accuracy_loss"] == pytest.approx(
            records["float32", 4]["metrics"]["test_accuracy"] - metrics["test_accuracy"]
        )
        assert len(entry["samples"]["latency"]) >= inference.ANSWERS
        assert entry["provenance"]["dtype"] == {"bfloat16": "bfloat16"}.get(precision, "float32")
    assert records["int8", 4]["provenance"]["quantized_layers"] == ["out"]
    assert abs(records["int8", 4]["metrics"]["accuracy_loss"]) < 0.02
    printed = capsys.readouterr().out
    assert (
        "99 answers in 100" in printed
        and "logistic in int8" in printed
        and "computed in float32, exactly" in printed
    )


def test_a_checkpoint_answers_as_it_was_tested(tmp_path):
    train = [
        "--study=train",
        "--device=cpu:1",
        "--model=mlp:32",
        "--dataset=digits",
        "--epochs=1",
        f"--results={tmp_path}",
    ]
    assert run.main(train) == 0
    ((path,), (folder,)) = (
        (tmp_path / "train").glob(f"*.{kind}") for kind in ("json", "checkpoints")
    )
    tested = json.loads(path.read_text())["metrics"]["test_accuracy"]
    answer = [
        *FEW[:2],
        "--model=mlp:32",
        "--batch-size=2",
        f"--init-from={folder}",
        f"--results={tmp_path}",
    ]
    assert run.main([*answer, "--dataset=digits"]) == 0
    records = found(tmp_path)
    assert records["float32", 2]["metrics"]["test_accuracy"] == pytest.approx(tested, abs=1e-6)
    assert (
        records["float32", 2]["settings"]["init_from"] == str(folder)
        and "training" not in records["int8", 2]["settings"]
    )


def test_weights_for_other_classes_are_refused(monkeypatch):
    class Saved:
        preprocessing = trained_model.Preprocessing(8, 8, 1, ("cat", "dog"))
        model = None

    monkeypatch.setattr(trained_model, "open_saved", lambda *_: Saved)
    config = RunConfig(model="lenet5", dataset="digits", init_from="somewhere")
    with pytest.raises(
        trained_model.InputError,
        match="--dataset=digits has 10 classes, the network of --init-from=somewhere 2",
    ):
        trained_model.load_or_train(config, backend.select("cpu"))


def test_cases_are_all_precisions_by_batches_as_far_as_images_leave_room():
    devices = backend.select("cpu")
    quick = inference.cases(RunConfig(), devices)
    assert [(case.settings["precision"], case.settings["batch_size"]) for case in quick][:4] == [
        ("float32", 1), ("float32", 8), ("float32", 32), ("bfloat16", 1),
    ]  # fmt: skip
    assert len(quick) == 9 and quick[0].settings["training"]["epochs"] == 5
    full = inference.cases(RunConfig(preset="full", model="resnet50"), devices)
    assert (
        max(case.settings["batch_size"] for case in full) == 256
    )  # 2²⁶ numbers are 446 images of 224×224×3
    assert full[0].settings["training"]["epochs"] == 30


def test_rows_of_a_split_are_fitted_to_what_the_network_stores():
    preprocessing = trained_model.Preprocessing(12, 12, 1, tuple("0123456789"))
    dataset = trained_model.data.open_dataset("digits", shape=(8, 8, 1))
    images, labels = trained_model.as_stored(dataset.test, np.array([3, 0]), preprocessing)
    assert images.shape == (2, 12, 12, 1) and images.dtype == np.uint8
    np.testing.assert_array_equal(images[1, 2:10, 2:10], dataset.test.read([0])[0][0])
    assert labels.tolist() == [dataset.test.read([3])[0][1], dataset.test.read([0])[0][1]]


@pytest.mark.slow
def test_eight_bits_cost_less_than_one_percent_on_mnist(tmp_path, tfds_dir):
    arguments = [
        "--model=mnist_cnn",
        "--dataset=mnist",
        "--epochs=1",
        "--batch-size=32",
        f"--data-dir={tfds_dir}",
    ]
    assert run.main([*FEW[:2], *arguments, f"--results={tmp_path}"]) == 0
    records = found(tmp_path)
    assert records["float32", 32]["metrics"]["test_accuracy"] > 0.96
    assert records["int8", 32]["metrics"]["accuracy_loss"] < 0.01
    assert records["int8", 32]["provenance"]["quantized_layers"] == [
        "conv1",
        "conv2",
        "dense",
        "out",
    ]
