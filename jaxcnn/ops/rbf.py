"""Radial basis functions: the output of LeNet-5."""

import jax.numpy as jnp
from jax import Array


def rbf(features: Array, centres: Array) -> Array:
    """The squared Euclidean distance to each centre: ``y[i] = sum((x[j] - w[i, j]) ** 2 for j)``.

    Computed as written, not as a matrix product, which would lose digits where a feature lies near a centre.

    Args:
      features: ``f32[N, F]``; LeNet-5 has 84.
      centres: ``f32[K, F]``, a row a class; in LeNet-5 fixed bitmaps of the characters, of -1 and 1.

    Returns:
      ``f32[N, K]``. The smallest is the class; training takes the distances as penalties, their negatives as logits.

    Source: LeCun et al. 1998, *Gradient-Based Learning Applied to Document Recognition*, §II.B, equation 7.

    >>> rbf(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 2.0], [-1.0, 1.0]])).tolist()
    [[0.0, 5.0]]
    """
    return jnp.sum((features[:, None, :] - centres) ** 2, -1)
