"""Smoothed and mixed labels, compared with cross-entropies of dense labels in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.objective import AUXILIARY_WEIGHT, classification

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((4, 5)).astype(np.float32)
LABELS = np.int32([0, 3, 1, 4])
OTHER_LABELS = np.int32([3, 0, 4, 1])
SHARES = np.float32([0.3, 0.3, 0.8, 0.0])
MASK = np.float32([1, 1, 1, 0])
BATCH = {"label": jnp.array(LABELS), "mask": jnp.array(MASK)}
MIXED = BATCH | {"other_label": jnp.array(OTHER_LABELS), "other_share": jnp.array(SHARES)}


def dense_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """The summed cross-entropy of the rows that are not masked, with dense labels."""
    shifted = np.float64(logits) - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-(labels * log_probabilities).sum(1) @ MASK)


def smoothed(labels: np.ndarray, smoothing: float) -> np.ndarray:
    return (1 - smoothing) * labels + smoothing / labels.shape[1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothed_labels(smoothing):
    metrics = classification(jnp.array(LOGITS), BATCH, smoothing)
    labels = smoothed(np.eye(5)[LABELS], smoothing)
    assert float(metrics["loss"]) == pytest.approx(dense_loss(LOGITS, labels), rel=1e-5)
    correct = LOGITS.argmax(1) == LABELS
    assert float(metrics["correct"]) == (correct * MASK).sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mixed_labels(smoothing):
    metrics = classification(jnp.array(LOGITS), MIXED, smoothing)
    shares = SHARES[:, None]
    mixed = (1 - shares) * np.eye(5)[LABELS] + shares * np.eye(5)[OTHER_LABELS]
    assert float(metrics["loss"]) == pytest.approx(
        dense_loss(LOGITS, smoothed(mixed, smoothing)), rel=1e-5
    )
    weights = mixed[np.arange(4), LOGITS.argmax(1)]
    assert float(metrics["correct"]) == pytest.approx((weights * MASK).sum(), abs=1e-6)
    assert float(metrics["count"]) == 3.0


def test_the_gradient_is_probability_minus_smoothed_label():
    gradient = jax.grad(lambda z: classification(z, BATCH, 0.2)["loss"])(jnp.array(LOGITS))
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    expected = (probabilities - smoothed(np.eye(5)[LABELS], 0.2)) * MASK[:, None]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_auxiliary_heads_are_smoothed_too():
    heads = [jnp.array(LOGITS), jnp.array(LOGITS[::-1])]
    labels = smoothed(np.eye(5)[LABELS], 0.1)
    expected = dense_loss(LOGITS, labels) + AUXILIARY_WEIGHT * dense_loss(LOGITS[::-1], labels)
    metrics = classification(tuple(heads), BATCH, 0.1)
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-5)


def test_training_smooths_and_evaluation_does_not():
    model = models.build("logistic", input_shape=(2, 3, 1), num_classes=4)
    batch = {"image": RNG.random((5, 2, 3, 1), np.float32), "label": np.int32([0, 1, 2, 3, 0])}
    state, plain = training.create(model, optax.sgd(0.5))
    _, smoothing = training.create(model, optax.sgd(0.5), label_smoothing=0.2)
    logits = batch["image"].reshape(5, 6) @ np.asarray(state.params["out"]["kernel"])
    logits = logits + np.asarray(state.params["out"]["bias"])
    log_probabilities = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    labels = smoothed(np.eye(4)[batch["label"]], 0.2)
    metrics = jax.jit(smoothing)(state, batch)[1]
    assert float(metrics["loss"]) == pytest.approx(-(labels * log_probabilities).sum(), rel=1e-5)
    assert float(smoothing.evaluation(state, batch)["loss"]) == float(
        plain.evaluation(state, batch)["loss"]
    )


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_a_share_outside_of_its_range_is_refused(value):
    with pytest.raises(InputError, match=f"label smoothing {value}: must be 0 or lie between"):
        training.create(models.build("logistic"), optax.sgd(0.1), label_smoothing=value)


@pytest.mark.peers
def test_the_losses_of_pytorch():
    functional = pytest.importorskip("torch").nn.functional
    torch = pytest.importorskip("torch")
    logits, labels = torch.tensor(LOGITS), torch.tensor(LABELS).long()
    losses = functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="none")
    loss = classification(jnp.array(LOGITS), BATCH, 0.1)["loss"]
    assert float(loss) == pytest.approx(float(losses @ torch.tensor(MASK)), rel=1e-6)
