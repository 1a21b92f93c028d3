"""What is minimised and counted: masked sums over a batch, so that means over any number of batches are exact."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

Batch = dict[str, Array]
Metrics = dict[str, Array]

AUXILIARY_WEIGHT = 0.3  # Szegedy et al. 2015, §5


def classification(outputs: Array | tuple[Array, ...], batch: Batch) -> Metrics:
    """Cross-entropy in nats, correct answers and examples, summed over the rows that `batch` does not mask.

    Args:
      outputs: logits ``f32[N, classes]``; ``f32[N, 1]`` is the logit of the second of two classes, whose cross-entropy is
        the binary one; of several arrays, the first decides and the others are auxiliary heads, which add 0.3 of their loss.
      batch: ``label`` ``i32[N]`` and, where some rows only fill up the batch, ``mask`` ``f32[N]``, 0 for those.

    Returns:
      ``loss``, ``correct`` and ``count``, each ``f32[]``.
    """
    first, *auxiliary = outputs if isinstance(outputs, tuple) else (outputs,)
    logits, labels, mask = class_logits(first), batch["label"], mask_of(batch)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    for head in auxiliary:
        losses += AUXILIARY_WEIGHT * optax.softmax_cross_entropy_with_integer_labels(
            class_logits(head), labels
        )
    correct = jnp.argmax(logits, axis=-1) == labels
    return {
        "loss": jnp.sum(losses * mask),
        "correct": jnp.sum(correct * mask),
        "count": jnp.sum(mask),
    }


def class_logits(logits: Array) -> Array:
    """``f32[N, classes]``; a single column z becomes (0, z), whose softmax is the sigmoid."""
    return (
        jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
        if logits.shape[-1] == 1
        else logits
    )


def weight_decay_penalty(params: Any, factor: float, layers: tuple[str, ...] = ()) -> Array:
    """``factor / 2 · Σ w²`` over the kernels of some layers, of all where none is named: a term of the loss, ``f32[]``."""
    leaves = jax.tree.leaves_with_path(params)
    kernels = [
        leaf for path, leaf in leaves if leaf.ndim > 1 and (not layers or path[0].key in layers)
    ]
    return factor / 2 * sum((jnp.sum(kernel**2) for kernel in kernels), start=jnp.float32(0))


def mask_of(batch: Batch) -> Array:
    """``f32[N]``: 1 for every row that counts."""
    return batch["mask"] if "mask" in batch else jnp.ones(len(batch["image"]), jnp.float32)


def means(metrics: Metrics) -> dict[str, float]:
    """Means from summed metrics: ``loss`` in nats, ``accuracy`` from 0 to 1, any other under its own name.

    >>> means({"loss": jnp.float32(3), "correct": jnp.float32(1), "count": jnp.float32(4)})
    {'loss': 0.75, 'accuracy': 0.25}
    """
    count = float(metrics["count"])
    return {
        "accuracy" if name == "correct" else name: float(total) / count
        for name, total in metrics.items()
        if name != "count"
    }
