"""Both pipelines deliver the same batches, and evaluation counts each example exactly once."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from experiments.workloads import pipelines
from experiments.workloads.reading import part
from experiments.workloads.setup import Splits
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.data.source import ArraySplit, FittedSplit
from jaxcnn.data.streamed import EvaluationBatches, TrainBatches, stream
from jaxcnn.training.sharding import UNSHARDED
from tests.support.pipeline import KINDS, STRATEGIES, build, random_images, small_setup


@pytest.mark.parametrize("flips", [False, True])
def test_resident_and_streamed_batches_are_the_same_bytes(flips):
    arrays = random_images(37)
    feed, batches = ResidentFeed(37, 8, flips), TrainBatches(arrays, 8, 5, flips)
    data = {"image": jax.numpy.array(arrays.images), "label": jax.numpy.array(arrays.labels)}
    data["seed"] = jax.numpy.uint32(5)
    for step in range(2 * feed.capacity + 1):
        resident = feed.batch(data, feed.order(data, np.int32(step)), np.int32(step), UNSHARDED)
        for name, values in batches[step].items():
            np.testing.assert_array_equal(resident[name], values)


def test_flips_mirror_each_image_in_every_second_epoch():
    images = np.zeros((64, 1, 2, 1), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = np.arange(64), 100  # a mirrored one begins with 100
    batches = TrainBatches(ArraySplit(images, np.arange(64)), 64, flips=True)
    mirrored = []
    for epoch in range(4):
        batch = batches[epoch]
        firsts = batch["image"][np.argsort(batch["label"]), 0, 0, 0]
        assert set(firsts) <= {*range(64), 100}
        mirrored.append(firsts == 100)
    assert 16 < mirrored[0].sum() < 48
    np.testing.assert_array_equal(mirrored[0], ~mirrored[1])
    np.testing.assert_array_equal(mirrored[::2], [mirrored[0]] * 2)


def test_an_epoch_visits_each_example_at_most_once():
    batches = TrainBatches(ArraySplit(np.zeros((37, 1, 1, 1), np.uint8), np.arange(37)), 8)
    for epoch in range(3):
        labels = np.concatenate([batches[epoch * 4 + place]["label"] for place in range(4)])
        assert len(set(labels.tolist())) == 32


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_keeps_the_order_and_can_start_at_any_step(workers):
    batches = TrainBatches(FittedSplit(random_images(37), (10, 10, 1)), 8, seed=1)
    streamed = list(stream(batches, 3, 9, workers))
    assert len(streamed) == 6
    for step, batch in enumerate(streamed, 3):
        np.testing.assert_array_equal(batch["image"], batches[step]["image"])
        np.testing.assert_array_equal(batch["label"], batches[step]["label"])


@pytest.mark.parametrize(("count", "batch_size"), [(37, 8), (8, 8), (5, 8), (33, 32), (1, 1)])
def test_each_example_is_in_exactly_one_evaluation_batch(count, batch_size):
    batches = EvaluationBatches(
        ArraySplit(np.zeros((count, 1, 1, 1), np.uint8), np.arange(count)), batch_size
    )
    rows = [batches[i] for i in range(len(batches))]
    labels = np.concatenate([batch["label"][batch["mask"] == 1] for batch in rows])
    assert labels.tolist() == list(range(count))
    assert all(len(batch["label"]) == batch_size for batch in rows)


@KINDS
@STRATEGIES
def test_evaluation_sums_are_numpys_for_every_batch_size_and_strategy(
    name, strategy, batch_size, devices
):
    setup = small_setup(strategy, batch_size, devices)
    pipeline, params = build(setup, name), setup.state.params["out"]
    for split, arrays in (("validation", setup.splits.validation), ("test", setup.splits.test)):
        inputs = arrays.images.reshape(len(arrays), -1) / 255
        logits = inputs @ np.float64(params["kernel"]) + np.float64(params["bias"])
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(arrays)), arrays.labels]
        sums = jax.device_get(pipeline.evaluate(setup.strategy.place(setup.state), split))
        assert sums["count"] == len(arrays)
        assert sums["correct"] == (logits.argmax(1) == arrays.labels).sum()
        np.testing.assert_allclose(sums["loss"], losses.sum(), rtol=1e-5)


def test_the_pipelines_train_to_the_same_parameters(devices):
    splits = Splits(random_images(50), random_images(10, 1), random_images(10, 2))
    trained_params = []
    for name in ("resident", "streamed"):
        momentum = optax.sgd(0.1, momentum=0.9)
        setup = small_setup(
            "jit", 8, devices, splits=splits, model="lenet_like", side=16, optimizer=momentum
        )
        state = setup.strategy.place(setup.state)
        pipeline = pipelines.build(setup, state, name=name, last_step=12)
        for first, count in ((0, 1), (1, 5), (6, 6)):
            state, metrics = pipeline.run_steps(state, first, count)
            assert metrics["count"].tolist() == [8.0] * count
        trained_params.append(setup.strategy.fetch(state).params)
    resident, streamed = trained_params
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), resident, streamed
    )


class LargeSplit:
    """A split that fits into no memory."""

    def __len__(self) -> int:
        return 10**9


def test_the_pipeline_is_chosen_by_size(devices):
    small = small_setup("jit", 8, devices)
    large = dataclasses.replace(small, splits=dataclasses.replace(small.splits, train=LargeSplit()))
    assert pipelines.choose(small)[0] == "resident"
    assert pipelines.choose(large)[0] == "streamed"
    assert pipelines.choose(small, "streamed") == ("streamed", "as requested")


@pytest.mark.parametrize("parts", [2, 3, 8])
@pytest.mark.parametrize("count", [37, 40])
def test_processes_together_read_the_global_batch(count, parts):
    """No example twice and none lost, in training and in evaluation, whatever the counts."""
    images, size = random_images(count), 24
    train, evaluation = TrainBatches(images, size, seed=3), EvaluationBatches(images, size)
    own = np.split(np.arange(size), parts)
    for whole in (train, evaluation):
        split = [dataclasses.replace(whole, local_rows=rows) for rows in own]
        for index in range(2):
            batches = [each[index] for each in split]
            for name, values in whole[index].items():
                joined = np.concatenate([batch[name] for batch in batches])
                np.testing.assert_array_equal(joined, values)


@pytest.mark.parametrize(("count", "parts"), [(1, 4), (5, 2), (12, 3), (37, 8)])
def test_the_parts_of_a_resident_set_are_its_rows_in_order(count, parts):
    rows = np.concatenate([part(count, index, parts) for index in range(parts)])
    assert rows[:count].tolist() == list(range(count))
    assert len({len(part(count, index, parts)) for index in range(parts)}) == 1
