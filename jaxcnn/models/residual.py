"""Layers of residual blocks: pre-activation, stochastic depth, layer scale, excitation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.fast_layers import BatchNorm
from jaxcnn.models.layers import Conv, GlobalAvgPool, example_keys, normalize

Activation = Callable[[Array], Array]


class NormReLU(nnx.Module):
    """Batch norm, then ReLU: what comes before the convolutions of networks with pre-activation.

    References:
      He et al. 2016, *Identity Mappings in Deep Residual Networks*, §4.1.
    """

    def __init__(self, channels: int, *, rngs: nnx.Rngs):
        self.norm = BatchNorm(channels, momentum=0.9, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        return normalize(self.norm, images, nnx.relu)


class StochasticDepth(nnx.Module):
    """Drops a residual branch for random examples in training; like `Dropout`, by their index.

    Attributes:
      rate: the probability that an example's branch is set to zero.
      deterministic: True in evaluation; set by `nnx.Module.eval`.
      batch_rows: ``i32[N]``, the position of each row of the input in the global batch; set by the
        train step. None for 0, 1, 2, …

    References:
      Huang et al. 2016, *Deep Networks with Stochastic Depth*, §3, with scaling during training.

    >>> branch = StochasticDepth(0.5, rngs=nnx.Rngs(0))
    >>> sorted(set(branch(jnp.ones((64, 4, 4, 8))).ravel().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        if not 0 <= rate < 1:
            raise ValueError(f"rate of stochastic depth must be in [0, 1), got {rate}")
        self.rate = rate
        self.deterministic = False
        self.batch_rows: Array | None = None
        self.rngs = rngs["dropout"].fork()

    def __call__(self, x: Array) -> Array:
        """Sets examples of ``x: [N, …]`` to zero and scales the others by ``1 / (1 - rate)``."""
        if self.deterministic or self.rate == 0:
            return x
        keys = example_keys(self.rngs(), len(x), self.batch_rows)
        keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - self.rate))(keys)
        return jnp.where(keep.reshape(-1, *(1,) * (x.ndim - 1)), x / (1 - self.rate), 0)


class LayerScale(nnx.Module):
    """A trainable factor for each channel of a residual branch.

    References:
      Touvron et al. 2021, *Going Deeper with Image Transformers*, §2.
    """

    def __init__(self, channels: int, initial: float):
        self.scale = nnx.Param(jnp.full(channels, initial, jnp.float32))

    def __call__(self, x: Array) -> Array:
        return x * self.scale[...]


class SqueezeExcite(nnx.Module):
    """Squeeze and excitation: a factor for each channel, computed from the means of all channels.

    Args:
      channels: of the images.
      reduced: the number of channels between the two dense layers, which are 1×1 convolutions here.
      activation: between the two layers.
      gate: the activation that computes the factors.

    References:
      Hu et al. 2018, *Squeeze-and-Excitation Networks*, §3.
    """

    def __init__(
        self,
        channels: int,
        reduced: int,
        *,
        activation: Activation = nnx.relu,
        gate: Activation = nnx.sigmoid,
        rngs: nnx.Rngs,
    ):
        self.pool = GlobalAvgPool()
        self.reduce = Conv(channels, reduced, 1, rngs=rngs)
        self.expand = Conv(reduced, channels, 1, rngs=rngs)
        self.activation, self.gate = activation, gate

    def __call__(self, x: Array) -> Array:
        means = self.pool(x)[:, None, None]
        return x * self.gate(self.expand(self.activation(self.reduce(means))))
