"""Every answer is kept, once and in order, and the accuracy is that of these answers."""

import json

import jax
import numpy as np
import pytest

from experiments import run
from experiments.studies import train
from experiments.workloads.predictions import Predictions
from experiments.workloads.setup import Splits
from jaxcnn import training
from jaxcnn.data.source import Arrays
from tests.support.pipeline import KINDS, STRATEGIES, build, random_images, small_setup


@KINDS
@STRATEGIES
def test_every_answer_is_numpys_whatever_the_pipeline_and_the_strategy(
    name, strategy, batch_size, devices
):
    setup = small_setup(strategy, batch_size, devices)
    pipeline = build(setup, name)
    out = {key: np.float64(value) for key, value in setup.state.params["out"].items()}
    for split, arrays in (("validation", setup.splits.validation), ("test", setup.splits.test)):
        logits = (arrays.images.reshape(len(arrays), -1) / 255) @ out["kernel"] + out["bias"]
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        found = pipeline.predict(setup.strategy.place(setup.state), split)
        np.testing.assert_array_equal(found.label, arrays.labels)
        np.testing.assert_array_equal(found.predicted, logits.argmax(1))
        np.testing.assert_allclose(found.probability, shares.max(1), rtol=1e-5)
        np.testing.assert_allclose(
            found.loss, -np.log(shares[np.arange(len(arrays)), arrays.labels]).sum(), rtol=1e-5
        )
        evaluated = training.means(
            jax.device_get(pipeline.evaluate(setup.strategy.place(setup.state), split))
        )
        assert found.means["accuracy"] == evaluated["accuracy"]
        assert found.means["loss"] == pytest.approx(evaluated["loss"], rel=1e-6)


def test_of_a_single_output_the_second_class_is_the_positive_one(devices):
    parts = (random_images(16), random_images(8, 1), random_images(9, 2))
    splits = Splits(*(Arrays(arrays.images, arrays.labels % 2) for arrays in parts))
    setup = small_setup("jit", 4, devices, splits=splits, num_classes=1)
    pipeline = build(setup, "streamed")
    out = {key: np.float64(value) for key, value in setup.state.params["out"].items()}
    logit = ((splits.test.images.reshape(9, -1) / 255) @ out["kernel"] + out["bias"])[:, 0]
    found = pipeline.predict(setup.strategy.place(setup.state), "test")
    np.testing.assert_array_equal(found.predicted, logit > 0)
    np.testing.assert_allclose(found.probability, 1 / (1 + np.exp(-np.abs(logit))), rtol=1e-5)


def test_the_accuracy_is_a_quotient_of_whole_numbers():
    answers = Predictions(np.array([0, 1, 2]), np.array([0, 1, 1]), np.ones(3, np.float32), 1.5)
    assert answers.means == {"accuracy": 2 / 3, "loss": 0.5}


@pytest.mark.parametrize(
    ("pipeline", "strategy"), [("resident", "jit"), ("streamed", "data"), ("resident", "pmap")]
)
def test_a_records_confusion_matrix_has_its_test_accuracy(
    pipeline, strategy, devices, tmp_path, monkeypatch
):
    monkeypatch.setattr(train, "IDLE", 0)
    options = [
        f"--pipeline={pipeline}",
        f"--strategy={strategy}",
        "--workers=0",
        f"--results={tmp_path}",
    ]
    assert run.main(["--study=train", "--model=logistic", "--epochs=1", *options]) == 0
    (path,) = (tmp_path / "train").glob("*.json")
    record = json.loads(path.read_text())
    found, look = record["mistakes"], record["dataset_summary"]
    confusion = np.array(found["confusion"])
    assert (
        np.trace(confusion) / confusion.sum()
        == record["metrics"]["test_accuracy"]
        == found["correct"] / found["total"]
    )
    assert confusion.sum(axis=1).tolist() == look["counts"]["test"] and found["total"] == 360
    assert found["classes"] == look["classes"] == list("0123456789")
    wrong = 360 - found["correct"]
    assert len(found["pictures"]) == min(12, wrong) > 0
    chances = [picture["probability"] for picture in found["pictures"]]
    assert chances == sorted(chances, reverse=True) and all(
        picture["true"] != picture["predicted"] for picture in found["pictures"]
    )
