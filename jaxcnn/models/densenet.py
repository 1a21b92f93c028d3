"""DenseNet-121."""

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import AvgPool, Conv, ConvNorm, GlobalAvgPool, MaxPool, he_normal
from jaxcnn.models.residual import NormReLU
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Huang et al. 2017, table 1: the number of layers in each dense block, and §4.2.
DENSENET121 = (6, 12, 24, 16)
GROWTH = 32


class DenseNet(SequentialNetwork):
    """DenseNet-121 (DenseNet-BC: with bottlenecks and compression).

    | layer                       | output     |
    |-----------------------------|------------|
    | conv 7×7, stride 2          | 112×112×64 |
    | max pool 3×3, stride 2      | 56×56×64   |
    | 6 dense layers, transition  | 28×28×128  |
    | 12 dense layers, transition | 14×14×256  |
    | 24 dense layers, transition | 7×7×512    |
    | 16 dense layers, norm, ReLU | 7×7×1024   |
    | global average, dense       | 1000       |

    References:
      Huang et al. 2017, *Densely Connected Convolutional Networks*, §3, table 1.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.stem = ConvNorm(input_shape[2], 64, 7, 2, rngs=rngs)
        self.pool1 = MaxPool(3, 2, 1)
        blocks: list[nnx.Sequential] = []
        transitions, channels = [], 64
        for count in DENSENET121:
            if blocks:
                transitions.append(Transition(channels, channels // 2, rngs=rngs))
                channels //= 2
            layers = [DenseLayer(channels + GROWTH * n, rngs=rngs) for n in range(count)]
            blocks.append(nnx.Sequential(*layers))
            channels += GROWTH * count
        self.blocks = nnx.List(blocks)
        self.transitions = nnx.List(transitions)
        self.norm = NormReLU(channels, rngs=rngs)
        self.pool = GlobalAvgPool()
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        first, *others = self.blocks
        pairs = zip(self.transitions, others, strict=True)
        later = (layer for pair in pairs for layer in pair)
        return (self.stem, self.pool1, first, *later, self.norm, self.pool, self.out)


class DenseLayer(nnx.Module):
    """Appends `GROWTH` channels, computed from all channels so far by way of four times as many."""

    def __init__(self, inputs: int, *, rngs: nnx.Rngs):
        self.norm = NormReLU(inputs, rngs=rngs)
        self.bottleneck = ConvNorm(inputs, 4 * GROWTH, 1, rngs=rngs)
        self.conv = Conv(4 * GROWTH, GROWTH, 3, use_bias=False, kernel_init=he_normal, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return jnp.concatenate([x, self.conv(self.bottleneck(self.norm(x)))], axis=-1)


class Transition(nnx.Module):
    """A convolution 1×1 to half the channels, then an average pool 2×2."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.norm = NormReLU(inputs, rngs=rngs)
        self.conv = Conv(inputs, outputs, 1, use_bias=False, kernel_init=he_normal, rngs=rngs)
        self.pool = AvgPool()

    def __call__(self, x: Array) -> Array:
        return self.pool(self.conv(self.norm(x)))
