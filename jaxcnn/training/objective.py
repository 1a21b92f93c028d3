"""The training objective and its metrics, as masked sums over a batch.

Sums, unlike means, can be added up over any number of batches of any size without error.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

Batch = dict[str, Array]
Metrics = dict[str, Array]

AUXILIARY_WEIGHT = 0.3  # Szegedy et al. 2015, §5


def classification(
    outputs: Array | tuple[Array, ...], batch: Batch, label_smoothing: float = 0.0
) -> Metrics:
    """Sums cross-entropy in nats, correct predictions and examples over the rows not masked.

    Args:
      outputs: logits ``f32[N, classes]``. A single column ``f32[N, 1]`` is the logit of the second
        of two classes, and its cross-entropy is the binary one. In a tuple the first array is the
        network's prediction; the others are auxiliary heads, whose losses are added with a weight
        of 0.3.
      batch: ``label`` ``i32[N]``; in a batch with padding rows also ``mask`` ``f32[N]``, which is 0
        for those. Mixed images (`jaxcnn.data.mixing`) have a second label, ``other_label``
        ``i32[N]``, with the weight ``other_share`` ``f32[N]``.
      label_smoothing: the share of the label that is divided evenly among all classes, 0 to 1.

    Returns:
      ``loss``, ``correct`` and ``count``, each ``f32[]``. The prediction for a mixed image is as
      correct as the predicted label's weight.

    References:
      Szegedy et al. 2015, *Going Deeper with Convolutions*, §5, for the auxiliary heads; Szegedy et
      al. 2016, *Rethinking the Inception Architecture*, §7, for label smoothing; Zhang et al. 2018,
      *mixup*, for mixed labels.

    >>> batch = {"image": jnp.zeros((3, 1, 1, 1)), "label": jnp.array([0, 1, 1])}
    >>> logits = jnp.array([[5.0, -5.0], [-5.0, 5.0], [5.0, -5.0]])
    >>> int(classification(logits, batch)["correct"])
    2
    """
    first, *auxiliary = outputs if isinstance(outputs, tuple) else (outputs,)
    logits, mask = class_logits(first), mask_of(batch)
    losses = _cross_entropy(logits, batch, label_smoothing)
    for head in auxiliary:
        losses += AUXILIARY_WEIGHT * _cross_entropy(class_logits(head), batch, label_smoothing)
    return {
        "loss": jnp.sum(losses * mask),
        "correct": jnp.sum(_correctness(jnp.argmax(logits, axis=-1), batch) * mask),
        "count": jnp.sum(mask),
    }


def _cross_entropy(logits: Array, batch: Batch, label_smoothing: float) -> Array:
    """The cross-entropy of each row with its label, mixed and smoothed, ``f32[N]``."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    if "other_label" in batch:
        other = optax.softmax_cross_entropy_with_integer_labels(logits, batch["other_label"])
        losses = (1 - batch["other_share"]) * losses + batch["other_share"] * other
    if label_smoothing:
        uniform = -jnp.mean(jax.nn.log_softmax(logits), axis=-1)
        losses = (1 - label_smoothing) * losses + label_smoothing * uniform
    return losses


def _correctness(predictions: Array, batch: Batch) -> Array:
    """1 for a correct prediction and 0 for a wrong one, ``f32[N]``; between for a mixed image."""
    correct = (predictions == batch["label"]).astype(jnp.float32)
    if "other_label" not in batch:
        return correct
    other = (predictions == batch["other_label"]).astype(jnp.float32)
    return (1 - batch["other_share"]) * correct + batch["other_share"] * other


def class_logits(logits: Array) -> Array:
    """Logits of all classes, ``f32[N, classes]``.

    A single column z becomes (0, z), whose softmax is the sigmoid of z.

    >>> class_logits(jnp.array([[2.0]])).tolist()
    [[0.0, 2.0]]
    """
    if logits.shape[-1] != 1:
        return logits
    return jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)


def weight_decay_penalty(params: Any, factor: float, layers: tuple[str, ...] = ()) -> Array:
    """The penalty ``factor / 2 · Σ w²``, a term of the loss, ``f32[]``.

    Args:
      params: the parameters, a dict of layers.
      factor: the weight decay.
      layers: names of the layers whose kernels are summed over; all layers if empty. Biases and
        scales are never included.

    >>> params = {"out": {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.ones(2)}}
    >>> float(weight_decay_penalty(params, factor=0.5))
    9.0
    """
    leaves = jax.tree.leaves_with_path(params)
    kernels = [leaf for path, leaf in leaves if is_decayed(path, leaf, layers)]
    return factor / 2 * sum((jnp.sum(kernel**2) for kernel in kernels), start=jnp.float32(0))


def is_decayed(path: tuple[Any, ...], leaf: Array, layers: tuple[str, ...]) -> bool:
    """Whether weight decay applies: to a kernel, in one of `layers`, or in any if that is empty."""
    return leaf.ndim > 1 and (not layers or path[0].key in layers)


def mask_of(batch: Batch) -> Array:
    """The mask of a batch, ``f32[N]``: 1 for an example, 0 for a padding row."""
    return batch["mask"] if "mask" in batch else jnp.ones(len(batch["image"]), jnp.float32)


def means(metrics: Mapping[str, Array | float]) -> dict[str, float]:
    """Divides summed metrics by ``count``.

    Args:
      metrics: sums, one of which is ``count``.

    Returns:
      ``loss`` in nats, ``accuracy`` from 0 to 1 (of ``correct``), and the mean of any other metric
      under its own name.

    >>> means({"loss": jnp.float32(3), "correct": jnp.float32(1), "count": jnp.float32(4)})
    {'loss': 0.75, 'accuracy': 0.25}
    """
    count = float(metrics["count"])
    return {
        "accuracy" if name == "correct" else name: float(total) / count
        for name, total in metrics.items()
        if name != "count"
    }
