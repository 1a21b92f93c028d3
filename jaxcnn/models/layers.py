"""Layers that several networks share."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxcnn import ops

Conv = partial(nnx.Conv, conv_general_dilated=ops.conv_general_dilated)


class Dropout(nnx.Module):
    """Dropout whose mask depends on the example's place in the global batch, not on the device it fell to.

    `nnx.Dropout` draws one mask for the array it sees. Under `pmap` each device would draw the same mask for its share,
    so the step would differ from the one on a single device. Here each example has a key of its own.

    Source: Srivastava et al. 2014, *Dropout*, §4, scaled while training.

    Attributes:
      deterministic: True in evaluation, set by `nnx.Module.eval`.
      axis_name: the mapped axis that the batch is spread over, set by the train step.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        if not 0 <= rate < 1:
            raise ValueError(f"dropout rate must be in [0, 1), got {rate}")
        self.rate = rate
        self.deterministic = False
        self.axis_name = None
        self.rngs = rngs["dropout"].fork()

    def __call__(self, x: Array) -> Array:
        """Zeroes features of ``x: [N, …]`` with probability `rate` and scales the rest by ``1 / (1 - rate)``."""
        if self.deterministic or self.rate == 0:
            return x
        first = lax.axis_index(self.axis_name) * len(x) if self.axis_name else 0
        keys = jax.vmap(jax.random.fold_in, (None, 0))(self.rngs(), first + jnp.arange(len(x)))
        keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - self.rate, x.shape[1:]))(keys)
        return jnp.where(keep, x / (1 - self.rate), 0)


def features(rows: int, columns: int, channels: int) -> int:
    """Length of a flattened feature map; raises `ImagesTooSmallError` where nothing of the image is left."""
    if rows < 1 or columns < 1:
        raise ImagesTooSmallError
    return rows * columns * channels


class ImagesTooSmallError(Exception):
    """The images are smaller than what the network's convolutions and pools take away."""


def flatten(images: Array) -> Array:
    """``[N, H, W, C]`` to ``[N, H * W * C]``."""
    return images.reshape(len(images), -1)
