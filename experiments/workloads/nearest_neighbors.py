"""k-nearest neighbors on an accelerator: all distances from one matrix product.

The classifier that scored best in Frigaard's lecture (ITMAL, lesson 09, 2021) uses the Minkowski
distance of order 4. In 784 dimensions a ball tree prunes next to nothing, so that each image is
compared with nearly all others, with one power per pixel. For an even order the powered distance is
a polynomial,

    Σ (a - b)⁴ = Σa⁴ - 4 Σa³b + 6 Σa²b² - 4 Σab³ + Σb⁴

and all mixed terms together are one product of two matrices of powers of the pixels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from experiments.measure.timing import compile_program

EXTRA_CANDIDATES = 8  # beyond k, so that rounding in the product loses no neighbor
BATCH_ROWS = 200  # test images at a time: their distances to 60,000 others are 48 MB


@dataclass(frozen=True)
class Classifier:
    """A compiled classifier.

    Attributes:
      predict: from rows ``f32[M, D]`` to classes ``i32[M]``.
      metrics: seconds of compiling, or of loading the program from a cache, by their names.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    metrics: dict[str, float]


def compile_classifier(
    train: np.ndarray, labels: np.ndarray, *, k: int, p: int, device: jax.Device
) -> Classifier:
    """Compiles a vote of the nearest training rows, each weighted by its inverse distance.

    Args:
      train: ``f32[N, D]``.
      labels: the classes of the training rows, ``i32[N]``.
      k: the number of neighbors that vote.
      p: the order of the Minkowski distance; even.
      device: where it is computed.

    Raises:
      ValueError: the order is odd, or k is not from 1 to N.

    >>> rows = np.float32([[0, 0], [0, 1], [5, 5], [5, 6]])
    >>> labels, test = np.int32([0, 0, 1, 1]), np.float32([[1, 1], [4, 4]])
    >>> classifier = compile_classifier(rows, labels, k=2, p=4, device=jax.devices()[0])
    >>> classifier.predict(test).tolist()
    [0, 1]
    """
    if p % 2 or not 1 <= k <= len(train):
        raise ValueError(f"needs an even order and 1 to {len(train)} neighbors, got {p=}, {k=}")
    placed = jax.device_put((train, labels), device)
    batch = jax.device_put(np.zeros((BATCH_ROWS, train.shape[1]), np.float32), device)
    program = compile_program(_make_vote(k, p, int(labels.max()) + 1), *placed, batch)

    def predict(test: np.ndarray) -> np.ndarray:
        padded = np.pad(test, [(0, -len(test) % BATCH_ROWS), (0, 0)])
        starts = range(0, len(test), BATCH_ROWS)
        batches = (jax.device_put(padded[i : i + BATCH_ROWS], device) for i in starts)
        votes = [np.asarray(program.executable(*placed, batch)) for batch in batches]
        return np.concatenate(votes)[: len(test)]

    return Classifier(predict, program.metrics)


def _make_vote(k: int, p: int, num_classes: int) -> Callable[..., jax.Array]:
    def vote(train: jax.Array, labels: jax.Array, test: jax.Array) -> jax.Array:
        count = min(k + EXTRA_CANDIDATES, len(train))
        _, candidates = jax.lax.top_k(-powered_distances(test, train, p), count)
        exact = jnp.sum((test[:, None] - train[candidates]) ** p, -1)
        negative, nearest = jax.lax.top_k(-exact, k)
        weights = _inverse_distances((-negative) ** (1 / p))
        classes = labels[jnp.take_along_axis(candidates, nearest, 1)]
        ballots = jax.nn.one_hot(classes, num_classes) * weights[..., None]
        return jnp.argmax(jnp.sum(ballots, 1), -1).astype(jnp.int32)

    return vote


def powered_distances(a: jax.Array, b: jax.Array, p: int) -> jax.Array:
    """Minkowski distances of even order p between rows, to the power of p.

    Args:
      a: ``f32[M, D]``.
      b: ``f32[N, D]``.
      p: the order; even.

    Returns:
      ``f32[M, N]``.

    >>> a, b = jnp.zeros((1, 2)), jnp.array([[1.0, 2.0]])
    >>> float(powered_distances(a, b, 4)[0, 0])  # 1⁴ + 2⁴
    17.0
    """
    left = jnp.concatenate([math.comb(p, j) * (-1) ** j * a ** (p - j) for j in range(1, p)], 1)
    right = jnp.concatenate([b**j for j in range(1, p)], 1)
    # The distance is a small difference of large terms, which TF32 would lose.
    product = jnp.matmul(left, right.T, precision="highest")
    return jnp.sum(a**p, 1)[:, None] + product + jnp.sum(b**p, 1)


def _inverse_distances(distances: jax.Array) -> jax.Array:
    """Voting weights; if some neighbors are identical to the test row, only those vote."""
    same = distances == 0
    inverse = 1 / jnp.where(same, 1, distances)
    return jnp.where(same.any(1, keepdims=True), same.astype(inverse.dtype), inverse)
