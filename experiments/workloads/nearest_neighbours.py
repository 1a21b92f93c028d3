"""k-nearest neighbours on an accelerator: the distances as one matrix product.

The published classifier of the MNIST quest (C7) measures by the Minkowski distance of order 4. In 784 dimensions a ball
tree leaves out next to nothing, so that each picture is held against nearly all others, one power a pixel. But

    Σ (a - b)⁴ = Σa⁴ - 4 Σa³b + 6 Σa²b² - 4 Σab³ + Σb⁴

so for an even order all distances are one product of powers of the pixels.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

MORE = 8  # candidates beyond k, so that rounding in the product loses none
ROWS = 200  # of test images at once: their distances to 60,000 others are 48 MB


def classify(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, *, k: int, p: int, device: jax.Device
) -> np.ndarray:
    """The class of each test row: k neighbours vote, each with the inverse of its distance.

    Args:
      train: ``f32[N, D]``.
      labels: their classes, ``i32[N]``.
      test: ``f32[M, D]``.
      k: neighbours that vote.
      p: order of the Minkowski distance; even.
      device: where it is computed.

    Returns:
      ``i32[M]``.

    Raises:
      ValueError: an odd order, or more neighbours than rows.

    >>> rows = np.float32([[0, 0], [0, 1], [5, 5], [5, 6]])
    >>> classify(rows, np.int32([0, 0, 1, 1]), np.float32([[1, 1], [4, 4]]), k=2, p=4, device=jax.devices()[0]).tolist()
    [0, 1]
    """
    if p % 2 or not 1 <= k <= len(train):
        raise ValueError(f"needs an even order and 1 to {len(train)} neighbours, got {p=}, {k=}")
    placed = jax.device_put((train, labels), device)
    vote = jax.jit(_voter(k, p, int(labels.max()) + 1))
    padded = np.pad(test, [(0, -len(test) % ROWS), (0, 0)])
    votes = [
        vote(*placed, jax.device_put(padded[first : first + ROWS], device))
        for first in range(0, len(test), ROWS)
    ]
    return np.concatenate([np.asarray(one) for one in votes])[: len(test)]


def _voter(k: int, p: int, classes: int) -> Callable[..., jax.Array]:
    def vote(train: jax.Array, labels: jax.Array, test: jax.Array) -> jax.Array:
        near = jax.lax.top_k(-powered_distances(test, train, p), min(k + MORE, len(train)))[1]
        exact = jnp.sum((test[:, None] - train[near]) ** p, -1)
        least, which = jax.lax.top_k(-exact, k)
        weights = _weights((-least) ** (1 / p))
        chosen = labels[jnp.take_along_axis(near, which, 1)]
        return jnp.argmax(
            jnp.sum(jax.nn.one_hot(chosen, classes) * weights[..., None], 1), -1
        ).astype(jnp.int32)

    return vote


def powered_distances(a: jax.Array, b: jax.Array, p: int) -> jax.Array:
    """Minkowski distance of even order p, to the power of p: ``f32[M, D]`` and ``f32[N, D]`` to ``f32[M, N]``."""
    ours = jnp.concatenate([math.comb(p, j) * (-1) ** j * a ** (p - j) for j in range(1, p)], 1)
    theirs = jnp.concatenate([b**j for j in range(1, p)], 1)
    product = jnp.matmul(
        ours, theirs.T, precision="highest"
    )  # what is left of large terms; TF32 would lose it
    return jnp.sum(a**p, 1)[:, None] + product + jnp.sum(b**p, 1)


def _weights(distances: jax.Array) -> jax.Array:
    """Inverse distances; where a neighbour is the same picture, it and its like alone count."""
    same = distances == 0
    return jnp.where(same.any(1, keepdims=True), same, 1 / jnp.where(same, 1, distances))
