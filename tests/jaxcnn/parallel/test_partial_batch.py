"""A batch that eight devices cannot share equally: refused, or padded with masked rows."""

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.errors import InputError

SEVERAL = pytest.mark.parametrize("name", ["pmap", "data", "fsdp"])


class Net(nnx.Module):
    """A dense layer for images of 2×2 pixels, which start from zero."""

    def __init__(self):
        zeros = nnx.initializers.zeros
        self.out = nnx.Linear(4, 2, kernel_init=zeros, rngs=nnx.Rngs(0))

    def __call__(self, images):
        return self.out(images.reshape(len(images), 4))


def batch(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(count, 2, 2, 1)).astype(np.float32)
    return {"image": images, "label": (np.arange(count) % 2).astype(np.int32)}


def create():
    return training.create(Net(), optax.sgd(1.0))


@SEVERAL
@pytest.mark.parametrize(("count", "missing"), [(13, 3), (7, 1), (1, 7), (20, 4)])
def test_sizes_that_do_not_divide_are_refused_with_the_sizes(name, count, missing, devices):
    message = (
        rf"a batch of {count} examples cannot be divided into 8 equal shares for 8 devices: .*"
        rf"pad_batch\(batch\)\) masks {missing} padding rows"
    )
    strategy = parallel.strategy(name, devices)
    with pytest.raises(InputError, match=message):
        strategy.place_batch(batch(count))
    with pytest.raises(InputError, match=message):
        strategy.place_rows(batch(count), count)


def test_a_mesh_divides_the_batch_by_its_data_axis_alone(devices):
    strategy = parallel.strategy("data_tensor", devices, mesh="4x2")
    placed = strategy.place_batch(batch(12))
    assert placed["label"].tolist() == [0, 1] * 6
    with pytest.raises(InputError, match="13 examples cannot be divided into 4 equal shares"):
        strategy.place_batch(batch(13))


@pytest.mark.parametrize("name", ["jit", "pmap"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [((4, 5), "arrays have 4 and 5 rows"), ((0, 0), "arrays have 0 rows")],
)
def test_arrays_of_different_lengths_or_none_are_refused(name, rows, message, devices):
    wrong = {"image": np.zeros((rows[0], 2, 2, 1)), "label": np.zeros(rows[1], np.int32)}
    strategy = parallel.strategy(name, devices)
    for call in (strategy.place_batch, strategy.pad_batch):
        with pytest.raises(InputError, match=f"{message}: all must have the same number"):
            call(wrong)


def test_padding_repeats_the_last_row_and_masks_it(devices):
    padded = parallel.strategy("data", devices).pad_batch(
        {"image": np.arange(10, dtype=np.uint8), "label": np.arange(10)}
    )
    assert padded["label"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9]
    assert padded["image"].dtype == np.uint8 and padded["mask"].dtype == np.float32
    assert padded["mask"].tolist() == [1.0] * 10 + [0.0] * 6


def test_a_mask_of_the_batch_is_kept(devices):
    mask = np.array([1, 0, 1], np.float32)
    padded = parallel.strategy("pmap", devices[:2]).pad_batch(batch(3) | {"mask": mask})
    assert padded["mask"].tolist() == [1, 0, 1, 0]


@SEVERAL
@pytest.mark.parametrize("count", [13, 3])
def test_evaluation_of_a_padded_batch_is_that_of_one_device(name, count, devices):
    state, step = create()
    strategy = parallel.strategy(name, devices)
    evaluate = strategy.compile_evaluation(step.evaluation)
    padded = strategy.place_batch(strategy.pad_batch(batch(count)))
    sums = jax.device_get(evaluate(strategy.place(state), padded))
    # both logits are 0: the loss of each example is ln 2, and class 0 is predicted
    np.testing.assert_allclose(sums["loss"], count * np.log(2), rtol=1e-6)
    assert (sums["count"], sums["correct"]) == (count, (count + 1) // 2)
    alone = jax.device_get(step.evaluation(state, batch(count)))
    for metric, value in alone.items():
        np.testing.assert_allclose(sums[metric], value, rtol=1e-6)


@SEVERAL
def test_training_on_a_padded_batch_is_that_of_one_device(name, devices):
    state, step = create()
    strategy, part = parallel.strategy(name, devices), batch(13)
    compiled = strategy.compile(step)
    placed = strategy.place_batch(strategy.pad_batch(part))
    after, metrics = compiled(strategy.place(state), placed)
    # the gradient of the mean loss at equal logits is Σ image · (1/2 - [label = class]) / 13
    images, labels = np.float64(part["image"].reshape(13, 4)), part["label"]
    errors = 0.5 - np.eye(2)[labels]
    kernel = strategy.fetch(after).params["out"]["kernel"]
    np.testing.assert_allclose(kernel, -images.T @ errors / 13, rtol=1e-5, atol=1e-7)
    assert float(metrics["count"]) == 13
    alone, _ = jax.jit(step)(state, part)
    np.testing.assert_allclose(kernel, alone.params["out"]["kernel"], rtol=1e-5, atol=1e-7)
