"""What is minimised and counted, by hand and against PyTorch's definitions written out in NumPy."""

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

LABELS = {"image": jnp.zeros((3, 1)), "label": jnp.array([0, 1, 1])}


def test_one_output_is_the_binary_cross_entropy():
    logits = jnp.array([[-2.0], [0.5], [-1.0]])
    chances = 1 / (1 + np.exp(-np.array([-2.0, 0.5, -1.0])))
    found = classification(logits, LABELS)
    assert float(found["loss"]) == pytest.approx(
        -np.log([1 - chances[0], chances[1], chances[2]]).sum(), rel=1e-6
    )
    assert float(found["correct"]) == 2.0  # the third is taken for the first class
    gradient = jax.grad(lambda z: classification(z, LABELS)["loss"])(logits)
    np.testing.assert_allclose(gradient[:, 0], chances - [0, 1, 1], rtol=1e-5)


def test_large_logits_stay_finite():
    found = classification(jnp.array([[1e4], [-1e4], [1e4]]), LABELS)
    assert float(found["loss"]) == pytest.approx(2e4)


def test_auxiliary_heads_add_three_tenths_of_their_loss_and_decide_nothing():
    rng = np.random.default_rng(0)
    main, first, second = (jnp.asarray(rng.standard_normal((3, 4)), jnp.float32) for _ in range(3))
    alone = [float(classification(head, LABELS)["loss"]) for head in (main, first, second)]
    found = classification((main, first, second), LABELS)
    assert AUXILIARY_WEIGHT == 0.3
    assert float(found["loss"]) == pytest.approx(alone[0] + 0.3 * (alone[1] + alone[2]), rel=1e-6)
    assert float(found["correct"]) == float(classification(main, LABELS)["correct"])


def test_class_logits_of_several_classes_are_left_alone():
    logits = jnp.arange(6.0).reshape(3, 2)
    assert class_logits(logits) is logits
    np.testing.assert_array_equal(class_logits(jnp.array([[3.0]])), [[0.0, 3.0]])


def test_weight_decay_by_hand():
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
