"""The step against NumPy: losses, one SGD update, masks, loss scaling."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.objective import classification as sums
from jaxcnn.training.precision import GROWTH_INTERVAL, next_scale
from tests.jaxcnn.models.test_models import LARGE, tried

SHAPE = (3, 2, 1)


def logistic(**options):
    return training.create(
        models.build("logistic", input_shape=SHAPE, num_classes=4), optax.sgd(0.5), **options
    )


def drawn(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {
        "image": rng.random((rows, *SHAPE), np.float32),
        "label": rng.integers(0, 4, rows, np.int32),
    }


def test_sums_by_hand():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    batch = {"label": jnp.array([0, 1, 2]), "mask": jnp.array([1.0, 1.0, 0.0])}
    found = sums(logits, batch)
    assert float(found["loss"]) == pytest.approx(-np.log(0.5) - np.log(0.1), rel=1e-6)
    assert (float(found["correct"]), float(found["count"])) == (1.0, 2.0)


def test_one_sgd_step_against_numpy():
    state, step = logistic()
    batch = drawn(5)
    x, weights, bias = (
        batch["image"].reshape(5, -1),
        np.float64(state.params["out"]["kernel"]),
        np.float64(state.params["out"]["bias"]),
    )
    chances = np.exp(x @ weights + bias)
    chances /= chances.sum(1, keepdims=True)
    slope = (chances - np.eye(4)[batch["label"]]) / 5
    after, metrics = jax.jit(step)(state, batch)
    np.testing.assert_allclose(
        after.params["out"]["kernel"], weights - 0.5 * x.T @ slope, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        after.params["out"]["bias"], bias - 0.5 * slope.sum(0), rtol=1e-5, atol=1e-6
    )
    assert float(metrics["loss"]) == pytest.approx(
        -np.log(chances[np.arange(5), batch["label"]]).sum(), rel=1e-5
    )
    assert int(after.step) == 1


def test_masked_rows_change_nothing():
    state, step = logistic()
    batch = drawn(6)
    filled = {
        "image": batch["image"].copy(),
        "label": batch["label"].copy(),
        "mask": np.float32([1, 1, 1, 1, 0, 0]),
    }
    filled["image"][4:] = 1e6
    first_four = {name: values[:4] for name, values in batch.items()}
    a, b = jax.jit(step)(state, filled), jax.jit(step)(state, first_four)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7),
        a[0].params,
        b[0].params,
    )
    assert float(a[1]["count"]) == 4.0
    assert jax.device_get(step.evaluation(state, filled))["loss"] == pytest.approx(
        float(step.evaluation(state, first_four)["loss"]), rel=1e-6
    )


def test_weight_decay_is_a_term_of_the_loss():
    batch = drawn(5)
    state, plain = logistic()
    _, decaying = logistic(weight_decay=0.1)
    (after, metrics), (expected, expected_metrics) = (
        jax.jit(decaying)(state, batch),
        jax.jit(plain)(state, batch),
    )
    weights = np.asarray(state.params["out"]["kernel"])
    np.testing.assert_allclose(
        after.params["out"]["kernel"],
        expected.params["out"]["kernel"] - 0.5 * 0.1 * weights,
        rtol=1e-5,
        atol=1e-6,
    )
    np.testing.assert_allclose(
        after.params["out"]["bias"], expected.params["out"]["bias"], rtol=1e-6
    )
    assert float(metrics["penalty"]) == pytest.approx(5 * 0.05 * (weights**2).sum(), rel=1e-5)
    assert float(metrics["loss"]) == float(expected_metrics["loss"])
    assert decaying.metrics == ("loss", "correct", "count", "penalty") and set(
        decaying.metrics
    ) == set(metrics)


def test_the_moving_average_is_what_evaluation_uses():
    state, step = logistic(ema_decay=0.9999)
    batches = [drawn(5), drawn(6)]
    first = np.asarray(state.params["out"]["kernel"])
    once, _ = jax.jit(step)(state, batches[0])
    twice, _ = jax.jit(step)(once, batches[1])
    # TensorFlow's decay of the first steps: 1/10, then 2/11
    average = 0.1 * first + 0.9 * np.asarray(once.params["out"]["kernel"])
    np.testing.assert_allclose(once.ema_params["out"]["kernel"], average, rtol=1e-5, atol=1e-7)
    average = 2 / 11 * average + 9 / 11 * np.asarray(twice.params["out"]["kernel"])
    np.testing.assert_allclose(twice.ema_params["out"]["kernel"], average, rtol=1e-5, atol=1e-7)
    moved = twice.replace(params=jax.tree.map(jnp.zeros_like, twice.params))
    assert float(step.evaluation(moved, batches[0])["loss"]) == float(
        step.evaluation(twice, batches[0])["loss"]
    )


def test_a_stage_begins_with_a_new_optimiser_and_another_rate():
    model = models.build("logistic", input_shape=SHAPE, num_classes=4)
    state, step = training.create(model, optax.sgd(0.5, momentum=0.9))
    after, _ = jax.jit(step)(state, drawn(5))
    again = step.restart(after, step=7, lr_scale=0.1)
    assert (int(again.step), float(again.lr_scale)) == (7, pytest.approx(0.1))
    assert not any(leaf.any() for leaf in jax.tree.leaves(again.opt_state))
    slow, _ = jax.jit(step)(again, drawn(5))
    fast, _ = jax.jit(step)(again.replace(lr_scale=jnp.float32(1)), drawn(5))
    change = [
        np.asarray(s.params["out"]["kernel"] - after.params["out"]["kernel"]) for s in (slow, fast)
    ]
    np.testing.assert_allclose(change[0], 0.1 * change[1], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_only_the_layers_named_are_trained_and_the_others_run_as_in_evaluation(precision):
    model = models.build("cats_vs_dogs", input_shape=(72, 72, 3), num_classes=3)
    state, step = training.create(model, optax.sgd(0.5), trainable=("out",), precision=precision)
    assert state.params.keys() == {"out"} and "convolve" in state.frozen
    batch = {
        "image": np.random.default_rng(0).random((4, 72, 72, 3), np.float32),
        "label": np.int32([0, 1, 2, 0]),
    }
    expected = jax.jit(step.evaluation)(state, batch)
    after, metrics = jax.jit(step)(state, batch)
    assert float(metrics["loss"]) == pytest.approx(
        float(expected["loss"]), rel=1e-6
    )  # neither dropout nor batch statistics
    jax.tree.map(np.testing.assert_array_equal, after.frozen, state.frozen)
    np.testing.assert_array_equal(
        after.model_state["norm1"]["mean"], state.model_state["norm1"]["mean"]
    )
    assert np.any(after.params["out"]["kernel"] != state.params["out"]["kernel"])


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
def test_half_precisions_compute_in_half_and_keep_full_parameters(precision):
    state, step = logistic(precision=precision)
    batch = drawn(32)
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
    """A gradient near 1e-8 is zero in float16, whose smallest number is 6e-8; scaled by 2^15 it is not."""
    state, step = logistic(precision="float16")
    batch = {"image": np.full((1, *SHAPE), 1e-3, np.float32), "label": np.int32([0])}
    bias = (
        jnp.zeros(4).at[0].set(11.0)
    )  # the answer is right by far: the slope of the others is e^-11 = 1.7e-5
    state = state.replace(params={"out": {"kernel": jnp.zeros((6, 4)), "bias": bias}})
    after, _ = jax.jit(step)(state, batch)
    assert float(jnp.abs(after.params["out"]["kernel"]).max()) == pytest.approx(
        3 * 0.5 * 1e-3 * 1.67e-5, rel=0.05
    )
    unscaled, _ = jax.jit(step)(state.replace(loss_scale=jnp.float32(1.0)), batch)
    assert float(jnp.abs(unscaled.params["out"]["kernel"][:, 1:]).max()) == 0.0


def test_an_overflowing_step_changes_nothing_but_the_scale():
    state, step = logistic(precision="float16")
    state = state.replace(loss_scale=jnp.float32(2.0**24), finite_steps=jnp.int32(7))
    batch = {"image": np.full((2, *SHAPE), 1000.0, np.float32), "label": np.int32([0, 1])}
    after, _ = jax.jit(step)(state, batch)
    jax.tree.map(np.testing.assert_array_equal, after.params, state.params)
    assert (float(after.loss_scale), int(after.finite_steps), int(after.step)) == (2.0**23, 0, 1)


def test_the_scale_by_hand():
    def following(scale, steps, finite):
        scale, steps = next_scale(jnp.float32(scale), jnp.int32(steps), jnp.bool_(finite))
        return float(scale), int(steps)

    assert following(1024, 3, True) == (1024, 4)
    assert following(1024, GROWTH_INTERVAL - 1, True) == (2048, 0)
    assert following(1024, 3, False) == (512, 0)
    assert following(1, 0, False) == (1, 0)
    assert following(2.0**24, GROWTH_INTERVAL - 1, True) == (2.0**24, 0)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in models.MODELS]
)
def test_every_step_lowers_for_every_platform(name):
    network = tried(name)
    state, step = network.created("bfloat16")
    lowered = (
        jax.jit(step).trace(state, network.batch).lower(lowering_platforms=("cpu", "cuda", "tpu"))
    )
    assert (
        "stablehlo.convolution" in lowered.as_text() or "stablehlo.dot_general" in lowered.as_text()
    )


def test_the_module_keeps_its_weights_when_the_state_is_donated():
    model = models.build("logistic", input_shape=SHAPE, num_classes=4)
    state, step = training.create(model, optax.sgd(0.5))
    jax.jit(step, donate_argnums=0)(state, drawn(4))
    assert np.isfinite(model.out.kernel[...]).all()


def test_an_unknown_precision_names_the_nearest():
    with pytest.raises(
        InputError, match=r"unknown precision 'bf16': .*Known: float32, bfloat16, float16"
    ):
        logistic(precision="bf16")
