"""Every example is predicted once and in order, and the accuracy is that of these predictions."""

import jax
import numpy as np
import pytest

from experiments import run
from experiments.studies import train
from experiments.workloads.predictions import Predictions
from experiments.workloads.setup import Splits
from jaxcnn import training
from jaxcnn.data.source import ArraySplit
from tests.support.pipeline import KINDS, STRATEGIES, build, random_images, small_setup
from tests.support.records import read_records


def numpy_logits(setup, images: np.ndarray) -> np.ndarray:
    """The logits of logistic regression, in float64."""
    out = {name: np.float64(value) for name, value in setup.state.params["out"].items()}
    return (images.reshape(len(images), -1) / 255) @ out["kernel"] + out["bias"]


@KINDS
@STRATEGIES
def test_predictions_are_numpys_for_every_pipeline_and_strategy(
    name, strategy, batch_size, devices
):
    setup = small_setup(strategy, batch_size, devices)
    pipeline = build(setup, name)
    for split, arrays in (("validation", setup.splits.validation), ("test", setup.splits.test)):
        logits = numpy_logits(setup, arrays.images)
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses = -np.log(probabilities[np.arange(len(arrays)), arrays.labels])
        predictions = pipeline.predict(setup.strategy.place(setup.state), split)
        np.testing.assert_array_equal(predictions.label, arrays.labels)
        np.testing.assert_array_equal(predictions.predicted, logits.argmax(1))
        np.testing.assert_allclose(predictions.probability, probabilities.max(1), rtol=1e-5)
        np.testing.assert_allclose(predictions.loss, losses.sum(), rtol=1e-5)
        sums = pipeline.evaluate(setup.strategy.place(setup.state), split)
        evaluated = training.means(jax.device_get(sums))
        assert predictions.means["accuracy"] == evaluated["accuracy"]
        assert predictions.means["loss"] == pytest.approx(evaluated["loss"], rel=1e-6)


def test_with_a_single_output_the_positive_class_is_the_second(devices):
    splits = Splits(
        *(
            ArraySplit(arrays.images, arrays.labels % 2)
            for arrays in (random_images(16), random_images(8, 1), random_images(9, 2))
        )
    )
    setup = small_setup("jit", 4, devices, splits=splits, num_classes=1)
    logits = numpy_logits(setup, splits.test.images)[:, 0]
    pipeline = build(setup, "streamed")
    predictions = pipeline.predict(setup.strategy.place(setup.state), "test")
    np.testing.assert_array_equal(predictions.predicted, logits > 0)
    probabilities = 1 / (1 + np.exp(-np.abs(logits)))
    np.testing.assert_allclose(predictions.probability, probabilities, rtol=1e-5)


def test_the_accuracy_is_a_quotient_of_integers():
    labels, predicted = np.array([0, 1, 2]), np.array([0, 1, 1])
    predictions = Predictions(labels, predicted, np.ones(3, np.float32), 1.5)
    assert predictions.means == {"accuracy": 2 / 3, "loss": 0.5}


@pytest.mark.parametrize(
    ("pipeline", "strategy"), [("resident", "jit"), ("streamed", "data"), ("resident", "pmap")]
)
def test_the_confusion_matrix_of_a_record_has_its_test_accuracy(
    pipeline, strategy, devices, tmp_path, monkeypatch
):
    monkeypatch.setattr(train, "IDLE_SECONDS", 0)
    options = [f"--pipeline={pipeline}", f"--strategy={strategy}", "--workers=0"]
    arguments = ["--study=train", "--model=logistic", "--epochs=1", *options]
    assert run.main([*arguments, f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "train")
    mistakes, summary = record["mistakes"], record["dataset_summary"]
    confusion = np.array(mistakes["confusion"])
    accuracy = record["metrics"]["test_accuracy"]
    assert np.trace(confusion) / confusion.sum() == accuracy
    assert mistakes["correct"] / mistakes["total"] == accuracy
    assert confusion.sum(axis=1).tolist() == summary["counts"]["test"]
    assert mistakes["total"] == 360
    assert mistakes["classes"] == summary["classes"] == list("0123456789")
    pictures = mistakes["pictures"]
    assert len(pictures) == min(12, 360 - mistakes["correct"]) > 0
    probabilities = [picture["probability"] for picture in pictures]
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(picture["true"] != picture["predicted"] for picture in pictures)
