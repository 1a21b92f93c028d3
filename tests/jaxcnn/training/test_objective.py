"""The objective and its metrics, compared with hand-worked numbers and with formulas in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.training.objective import (
    AUXILIARY_WEIGHT,
    class_logits,
    classification,
    means,
    weight_decay_penalty,
)

BATCH = {"image": jnp.zeros((3, 1)), "label": jnp.array([0, 1, 1])}


def test_classification_by_hand():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    batch = {"label": jnp.array([0, 1, 2]), "mask": jnp.array([1.0, 1.0, 0.0])}
    metrics = classification(logits, batch)
    assert float(metrics["loss"]) == pytest.approx(-np.log(0.5) - np.log(0.1), rel=1e-6)
    assert (float(metrics["correct"]), float(metrics["count"])) == (1.0, 2.0)


def test_a_single_output_gives_the_binary_cross_entropy():
    logits = jnp.array([[-2.0], [0.5], [-1.0]])
    probabilities = 1 / (1 + np.exp(-np.array([-2.0, 0.5, -1.0])))
    metrics = classification(logits, BATCH)
    assert float(metrics["loss"]) == pytest.approx(
        -np.log([1 - probabilities[0], probabilities[1], probabilities[2]]).sum(), rel=1e-6
    )
    assert float(metrics["correct"]) == 2.0  # the third is predicted as the first class
    gradient = jax.grad(lambda z: classification(z, BATCH)["loss"])(logits)
    np.testing.assert_allclose(gradient[:, 0], probabilities - [0, 1, 1], rtol=1e-5)


def test_the_loss_of_large_logits_is_finite():
    metrics = classification(jnp.array([[1e4], [-1e4], [1e4]]), BATCH)
    assert float(metrics["loss"]) == pytest.approx(2e4)


def test_auxiliary_heads_add_three_tenths_of_their_loss_and_do_not_predict():
    rng = np.random.default_rng(0)
    main, first, second = (jnp.asarray(rng.standard_normal((3, 4)), jnp.float32) for _ in range(3))
    losses = [float(classification(head, BATCH)["loss"]) for head in (main, first, second)]
    metrics = classification((main, first, second), BATCH)
    assert AUXILIARY_WEIGHT == 0.3
    assert float(metrics["loss"]) == pytest.approx(
        losses[0] + 0.3 * (losses[1] + losses[2]), rel=1e-6
    )
    assert float(metrics["correct"]) == float(classification(main, BATCH)["correct"])


def test_class_logits_of_several_classes_are_unchanged():
    logits = jnp.arange(6.0).reshape(3, 2)
    assert class_logits(logits) is logits
    np.testing.assert_array_equal(class_logits(jnp.array([[3.0]])), [[0.0, 3.0]])


def test_weight_decay_penalty_by_hand():
    params = {
        "a": {"kernel": jnp.array([[1.0, 2.0]]), "bias": jnp.array([9.0])},
        "b": {"kernel": jnp.array([[3.0]])},
    }
    assert float(weight_decay_penalty(params, 0.1)) == pytest.approx(0.05 * (1 + 4 + 9))
    assert float(weight_decay_penalty(params, 0.1, ("b",))) == pytest.approx(0.05 * 9)
    gradient = jax.grad(weight_decay_penalty)(params, 0.1, ("a",))
    np.testing.assert_allclose(gradient["a"]["kernel"], [[0.1, 0.2]])
    assert not gradient["a"]["bias"].any() and not gradient["b"]["kernel"].any()


def test_means_of_any_metrics():
    metrics = {
        "loss": jnp.float32(6),
        "correct": jnp.float32(3),
        "count": jnp.float32(4),
        "penalty": jnp.float32(2),
    }
    assert means(metrics) == {"loss": 1.5, "accuracy": 0.75, "penalty": 0.5}
