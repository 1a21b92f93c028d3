"""Both pipelines give the same batches, and evaluation counts each example once whatever the batch."""

import jax
import numpy as np
import optax
import pytest
from pipelined import KINDS, STRATEGIES, drawn, logistic

from experiments.workloads import pipelines
from jaxcnn import models, parallel, training
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.data.source import Arrays, fitted
from jaxcnn.data.streamed import EvaluationBatches, TrainBatches, stream
from jaxcnn.training.step import UNSHARDED


def test_resident_and_streamed_batches_are_the_same_bytes():
    arrays = drawn(37)
    feed, batches = ResidentFeed(37, 8, seed=5), TrainBatches(arrays, 8, seed=5)
    data = {"image": jax.numpy.array(arrays.images), "label": jax.numpy.array(arrays.labels)}
    for step in range(2 * feed.capacity + 1):
        resident = feed.batch(data, feed.order(data, np.int32(step)), np.int32(step), UNSHARDED)
        for name, values in batches[step].items():
            np.testing.assert_array_equal(resident[name], values)


def test_an_epoch_visits_each_example_at_most_once():
    batches = TrainBatches(Arrays(np.zeros((37, 1, 1, 1), np.uint8), np.arange(37)), 8)
    for epoch in range(3):
        seen = np.concatenate([batches[epoch * 4 + place]["label"] for place in range(4)])
        assert len(set(seen.tolist())) == 32


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_keeps_the_order_and_starts_anywhere(workers):
    batches = TrainBatches(fitted(drawn(37), (10, 10, 1)), 8, seed=1)
    found = list(stream(batches, 3, 9, workers))
    assert len(found) == 6
    for step, batch in enumerate(found, 3):
        np.testing.assert_array_equal(batch["image"], batches[step]["image"])
        np.testing.assert_array_equal(batch["label"], batches[step]["label"])


@pytest.mark.parametrize(("count", "batch_size"), [(37, 8), (8, 8), (5, 8), (33, 32), (1, 1)])
def test_each_example_is_in_one_evaluation_batch(count, batch_size):
    batches = EvaluationBatches(Arrays(np.zeros((count, 1, 1, 1), np.uint8), np.arange(count)), batch_size)
    rows = [batches[i] for i in range(len(batches))]
    labels = np.concatenate([batch["label"][batch["mask"] == 1] for batch in rows])
    assert labels.tolist() == list(range(count))
    assert all(len(batch["label"]) == batch_size for batch in rows)


@KINDS
@STRATEGIES
def test_evaluation_is_exact_whatever_the_batch(name, strategy, batch_size, devices):
    splits, state, over, pipeline = logistic(name, strategy, batch_size, devices)
    for split, arrays in (("validation", splits.validation), ("test", splits.test)):
        logits = (arrays.images.reshape(len(arrays), -1) / 255) @ np.float64(state.params["out"]["kernel"]) + np.float64(
            state.params["out"]["bias"]
        )
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(arrays)), arrays.labels]
        found = jax.device_get(pipeline.evaluate(over.place(state), split))
        assert found["count"] == len(arrays)
        assert found["correct"] == (logits.argmax(1) == arrays.labels).sum()
        np.testing.assert_allclose(found["loss"], losses.sum(), rtol=1e-5)


def test_the_pipelines_train_to_the_same_parameters(devices):
    splits = pipelines.Splits(drawn(50), drawn(10, 1), drawn(10, 2))
    over = parallel.strategy("jit", devices)
    ends = []
    for name in ("resident", "streamed"):
        state, step = training.create(models.build("lenet_like", input_shape=(16, 16, 1)), optax.sgd(0.1, momentum=0.9))
        placed = over.place(state)
        pipeline = pipelines.build(
            name, over, step, placed, splits, shape=(16, 16, 1), batch_size=8, seed=0, workers=0, first_step=0, last_step=12
        )  # fmt: skip
        for first, count in ((0, 1), (1, 5), (6, 6)):
            placed, metrics = pipeline.run_steps(placed, first, count)
            assert metrics["count"].tolist() == [8.0] * count
        ends.append(over.fetch(placed).params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *ends)


def test_the_pipeline_is_chosen_by_size(devices):
    assert pipelines.choose("auto", 1000, (8, 8, 1), devices[:1])[0] == "resident"
    assert pipelines.choose("auto", 10**9, (224, 224, 3), devices[:1])[0] == "streamed"
    assert pipelines.choose("streamed", 10, (8, 8, 1), devices) == ("streamed", "as asked")
