"""The train step compared with NumPy: losses, SGD updates, masks, averages, loss scaling."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.precision import GROWTH_INTERVAL, next_scale
from tests.support.small_networks import EVERY_MODEL, small_network

SHAPE = (3, 2, 1)


def logistic(**options) -> tuple[training.TrainState, training.TrainStep]:
    """Logistic regression from six pixels to four classes, with SGD at a rate of 0.5."""
    model = models.build("logistic", input_shape=SHAPE, num_classes=4)
    return training.create(model, optax.sgd(0.5), **options)


def random_batch(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    return {
        "image": rng.random((size, *SHAPE), np.float32),
        "label": rng.integers(0, 4, size, np.int32),
    }


def kernel_of(state: training.TrainState) -> np.ndarray:
    return np.asarray(state.params["out"]["kernel"])


def bias_of(state: training.TrainState) -> np.ndarray:
    return np.asarray(state.params["out"]["bias"])


def test_one_sgd_step_is_that_of_numpy():
    state, step = logistic()
    batch = random_batch(5)
    x = batch["image"].reshape(5, -1)
    kernel, bias = np.float64(kernel_of(state)), np.float64(bias_of(state))
    probabilities = np.exp(x @ kernel + bias)
    probabilities /= probabilities.sum(1, keepdims=True)
    gradient = (probabilities - np.eye(4)[batch["label"]]) / 5
    after, metrics = jax.jit(step)(state, batch)
    np.testing.assert_allclose(
        kernel_of(after), kernel - 0.5 * x.T @ gradient, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(bias_of(after), bias - 0.5 * gradient.sum(0), rtol=1e-5, atol=1e-6)
    assert float(metrics["loss"]) == pytest.approx(
        -np.log(probabilities[np.arange(5), batch["label"]]).sum(), rel=1e-5
    )
    assert int(after.step) == 1


def test_masked_rows_have_no_effect():
    state, step = logistic()
    batch = random_batch(6)
    masked = {
        "image": batch["image"].copy(),
        "label": batch["label"].copy(),
        "mask": np.float32([1, 1, 1, 1, 0, 0]),
    }
    masked["image"][4:] = 1e6
    first_four = {name: values[:4] for name, values in batch.items()}
    (after, metrics), (expected, _) = jax.jit(step)(state, masked), jax.jit(step)(state, first_four)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7),
        after.params,
        expected.params,
    )
    assert float(metrics["count"]) == 4.0
    assert jax.device_get(step.evaluation(state, masked))["loss"] == pytest.approx(
        float(step.evaluation(state, first_four)["loss"]), rel=1e-6
    )


def test_weight_decay_is_a_term_of_the_loss():
    batch = random_batch(5)
    state, plain = logistic()
    _, decaying = logistic(weight_decay=0.1)
    after, metrics = jax.jit(decaying)(state, batch)
    expected, expected_metrics = jax.jit(plain)(state, batch)
    kernel = kernel_of(state)
    np.testing.assert_allclose(
        kernel_of(after), kernel_of(expected) - 0.5 * 0.1 * kernel, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(bias_of(after), bias_of(expected), rtol=1e-6)
    assert float(metrics["penalty"]) == pytest.approx(5 * 0.05 * (kernel**2).sum(), rel=1e-5)
    assert float(metrics["loss"]) == float(expected_metrics["loss"])
    assert metrics.keys() == {"loss", "correct", "count", "penalty"}


def test_evaluation_uses_the_averaged_parameters():
    state, step = logistic(ema_decay=0.9999)
    batches = [random_batch(5), random_batch(6)]
    once, _ = jax.jit(step)(state, batches[0])
    twice, _ = jax.jit(step)(once, batches[1])
    # The decay of TensorFlow's moving average in the first steps is 1/10, then 2/11.
    average = 0.1 * kernel_of(state) + 0.9 * kernel_of(once)
    np.testing.assert_allclose(once.ema_params["out"]["kernel"], average, rtol=1e-5, atol=1e-7)
    average = 2 / 11 * average + 9 / 11 * kernel_of(twice)
    np.testing.assert_allclose(twice.ema_params["out"]["kernel"], average, rtol=1e-5, atol=1e-7)
    without_params = twice.replace(params=jax.tree.map(jnp.zeros_like, twice.params))
    assert float(step.evaluation(without_params, batches[0])["loss"]) == float(
        step.evaluation(twice, batches[0])["loss"]
    )


def test_a_stage_begins_with_a_new_optimizer_state_and_another_learning_rate():
    model = models.build("logistic", input_shape=SHAPE, num_classes=4)
    state, step = training.create(model, optax.sgd(0.5, momentum=0.9))
    after, _ = jax.jit(step)(state, random_batch(5))
    restarted = step.restart(after, step=7, lr_scale=0.1)
    assert (int(restarted.step), float(restarted.lr_scale)) == (7, pytest.approx(0.1))
    assert not any(leaf.any() for leaf in jax.tree.leaves(restarted.opt_state))
    slow, _ = jax.jit(step)(restarted, random_batch(5))
    fast, _ = jax.jit(step)(restarted.replace(lr_scale=jnp.float32(1)), random_batch(5))
    slow_change, fast_change = (kernel_of(next_) - kernel_of(after) for next_ in (slow, fast))
    np.testing.assert_allclose(slow_change, 0.1 * fast_change, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_only_trainable_layers_are_trained_and_the_others_run_in_evaluation_mode(precision):
    model = models.build("cats_vs_dogs", input_shape=(72, 72, 3), num_classes=3)
    state, step = training.create(model, optax.sgd(0.5), trainable=("out",), precision=precision)
    assert state.params.keys() == {"out"} and "convolve" in state.frozen
    batch = {
        "image": np.random.default_rng(0).random((4, 72, 72, 3), np.float32),
        "label": np.int32([0, 1, 2, 0]),
    }
    expected = jax.jit(step.evaluation)(state, batch)
    after, metrics = jax.jit(step)(state, batch)
    # Neither dropout nor batch statistics:
    assert float(metrics["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-6)
    jax.tree.map(np.testing.assert_array_equal, after.frozen, state.frozen)
    np.testing.assert_array_equal(
        after.model_state["norm1"]["mean"], state.model_state["norm1"]["mean"]
    )
    assert np.any(kernel_of(after) != kernel_of(state))


def test_bytes_are_scaled_to_one():
    state, step = logistic()
    pixels = np.random.default_rng(0).integers(0, 256, (3, *SHAPE), np.uint8)
    labels = np.int32([0, 1, 2])
    losses = [
        float(step.evaluation(state, {"image": images, "label": labels})["loss"])
        for images in (pixels, np.float32(pixels) / 255)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precisions_compute_in_half_and_keep_float32_parameters(precision):
    state, step = logistic(precision=precision)
    batch = random_batch(32)
    jaxpr = str(jax.make_jaxpr(step)(state, batch))
    assert {"bfloat16": "bf16[32,6]", "float16": "f16[32,6]"}[precision] in jaxpr
    after, metrics = jax.jit(step)(state, batch)
    expected, expected_metrics = jax.jit(logistic()[1])(state, batch)
    assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.dtype("float32")}
    assert float(metrics["loss"]) == pytest.approx(float(expected_metrics["loss"]), rel=1e-2)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-2), after.params, expected.params
    )


def test_loss_scaling_keeps_gradients_that_float16_would_lose():
    """Unless scaled by 2¹⁵, a gradient near 1e-8 is zero: the smallest float16 is 6e-8."""
    state, step = logistic(precision="float16")
    batch = {"image": np.full((1, *SHAPE), 1e-3, np.float32), "label": np.int32([0])}
    # The prediction is right by a wide margin: the gradient of each other logit is e⁻¹¹, 1.7e-5.
    bias = jnp.zeros(4).at[0].set(11.0)
    state = state.replace(params={"out": {"kernel": jnp.zeros((6, 4)), "bias": bias}})
    after, _ = jax.jit(step)(state, batch)
    largest = 3 * 0.5 * 1e-3 * 1.67e-5
    assert np.abs(kernel_of(after)).max() == pytest.approx(largest, rel=0.05)
    unscaled, _ = jax.jit(step)(state.replace(loss_scale=jnp.float32(1.0)), batch)
    assert np.abs(kernel_of(unscaled)[:, 1:]).max() == 0.0


def test_an_overflowing_step_changes_only_the_loss_scale():
    state, step = logistic(precision="float16")
    state = state.replace(loss_scale=jnp.float32(2.0**24), finite_steps=jnp.int32(7))
    batch = {"image": np.full((2, *SHAPE), 1000.0, np.float32), "label": np.int32([0, 1])}
    after, _ = jax.jit(step)(state, batch)
    jax.tree.map(np.testing.assert_array_equal, after.params, state.params)
    assert (float(after.loss_scale), int(after.finite_steps), int(after.step)) == (2.0**23, 0, 1)


@pytest.mark.parametrize(
    ("scale", "finite_steps", "finite", "expected"),
    [
        (1024, 3, True, (1024, 4)),
        (1024, GROWTH_INTERVAL - 1, True, (2048, 0)),
        (1024, 3, False, (512, 0)),
        (1, 0, False, (1, 0)),
        (2.0**24, GROWTH_INTERVAL - 1, True, (2.0**24, 0)),
    ],
)
def test_next_scale(scale, finite_steps, finite, expected):
    scale, finite_steps = next_scale(jnp.float32(scale), jnp.int32(finite_steps), jnp.bool_(finite))
    assert (float(scale), int(finite_steps)) == expected


@pytest.mark.standard_promotion
@EVERY_MODEL
def test_the_train_step_of_every_model_lowers_for_every_platform(name):
    network = small_network(name)
    state, step = network.create("bfloat16")
    traced = jax.jit(step).trace(state, network.batch)
    text = traced.lower(lowering_platforms=("cpu", "cuda", "tpu")).as_text()
    assert "stablehlo.convolution" in text or "stablehlo.dot_general" in text


def test_donating_the_state_leaves_the_weights_of_the_module_valid():
    model = models.build("logistic", input_shape=SHAPE, num_classes=4)
    state, step = training.create(model, optax.sgd(0.5))
    jax.jit(step, donate_argnums=0)(state, random_batch(4))
    assert np.isfinite(model.out.kernel[...]).all()


@pytest.mark.parametrize("option", ["trainable", "weight_decay_layers"])
def test_an_unknown_layer_lists_the_known_ones(option):
    with pytest.raises(InputError, match="unknown layer 'otu': did you mean 'out'"):
        logistic(**{option: ("otu",)})


def test_an_unknown_precision_lists_the_known_ones():
    with pytest.raises(
        InputError, match=r"unknown precision 'bf16': .*Known: float32, bfloat16, float16"
    ):
        logistic(precision="bf16")
