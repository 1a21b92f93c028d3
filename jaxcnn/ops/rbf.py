"""Radial basis functions: the output layer of LeNet-5."""

import jax.numpy as jnp
from jax import Array


def rbf(features: Array, centers: Array) -> Array:
    """Computes the squared distance to each center: ``y[i] = sum((x[j] - w[i, j]) ** 2 for j)``.

    It is computed as written. A matrix product would lose digits where a feature is near a center.

    Args:
      features: ``f32[N, F]``; LeNet-5 has 84 features.
      centers: ``f32[K, F]``, one row per class. In LeNet-5 they are fixed bitmaps of the
        characters, with the values -1 and 1.

    Returns:
      ``f32[N, K]``. The class with the smallest distance is the prediction. Training uses the
      distances as penalties, and their negatives as logits.

    Source: LeCun et al. 1998, *Gradient-Based Learning Applied to Document Recognition*, section
    II.B, equation 7.

    >>> rbf(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 2.0], [-1.0, 1.0]])).tolist()
    [[0.0, 5.0]]
    """
    return jnp.sum((features[:, None, :] - centers) ** 2, -1)
