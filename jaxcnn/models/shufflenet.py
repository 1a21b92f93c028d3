"""ShuffleNetV2 1.0×."""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import ConvNorm, GlobalAvgPool, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Ma et al. 2018, table 5: output channels and number of units of stages 2 to 4.
STAGES = ((116, 4), (232, 8), (464, 4))


class ShuffleNetV2(SequentialNetwork):
    """ShuffleNetV2 1.0×.

    | layer                   | output     |
    |-------------------------|------------|
    | conv 3×3, stride 2      | 112×112×24 |
    | max pool 3×3, stride 2  | 56×56×24   |
    | 4 units                 | 28×28×116  |
    | 8 units                 | 14×14×232  |
    | 4 units                 | 7×7×464    |
    | conv 1×1                | 7×7×1024   |
    | global average, dense   | 1000       |

    The first unit of each stage has stride 2.

    References:
      Ma et al. 2018, *ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design*,
      §3, table 5.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.stem = ConvNorm(input_shape[2], 24, 3, 2, rngs=rngs)
        self.pool1 = MaxPool(3, 2, 1)
        stages, channels = [], 24
        for outputs, count in STAGES:
            first = DownsamplingUnit(channels, outputs, rngs=rngs)
            stages.append(
                nnx.Sequential(first, *(Unit(outputs, rngs=rngs) for _ in range(1, count)))
            )
            channels = outputs
        self.stages = nnx.Sequential(*stages)
        self.last = ConvNorm(channels, 1024, 1, rngs=rngs)
        self.pool = GlobalAvgPool()
        self.out = Linear(1024, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.stem, self.pool1, self.stages, self.last, self.pool, self.out)


class Unit(nnx.Module):
    """Leaves half of the channels as they are (figure 3c)."""

    def __init__(self, channels: int, *, rngs: nnx.Rngs):
        self.main = main_branch(channels // 2, channels // 2, 1, rngs)

    def __call__(self, x: Array) -> Array:
        kept, changed = jnp.split(x, 2, axis=-1)
        return shuffle(jnp.concatenate([kept, self.main(changed)], axis=-1))


class DownsamplingUnit(nnx.Module):
    """Two branches with stride 2 over all channels (figure 3d)."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.side = nnx.Sequential(
            ConvNorm(inputs, inputs, 3, 2, groups=inputs, activation=None, rngs=rngs),
            ConvNorm(inputs, outputs // 2, 1, rngs=rngs),
        )
        self.main = main_branch(inputs, outputs // 2, 2, rngs)

    def __call__(self, x: Array) -> Array:
        return shuffle(jnp.concatenate([self.side(x), self.main(x)], axis=-1))


def main_branch(inputs: int, outputs: int, strides: int, rngs: nnx.Rngs) -> nnx.Sequential:
    """Convolutions 1×1, depthwise 3×3 without an activation, and 1×1."""
    return nnx.Sequential(
        ConvNorm(inputs, outputs, 1, rngs=rngs),
        ConvNorm(outputs, outputs, 3, strides, groups=outputs, activation=None, rngs=rngs),
        ConvNorm(outputs, outputs, 1, rngs=rngs),
    )


def shuffle(x: Array) -> Array:
    """Channels in the order 0, C/2, 1, C/2 + 1, …, so that halves exchange channels.

    >>> shuffle(jnp.arange(6).reshape(1, 1, 1, 6)).ravel().tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return x.reshape(*x.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(x.shape)
