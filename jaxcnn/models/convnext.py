"""ConvNeXt-T."""

from functools import partial

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import LayerNorm, Linear
from jaxcnn.models.layers import Conv, GlobalAvgPool
from jaxcnn.models.residual import LayerScale, StochasticDepth
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Liu et al. 2022, table 9: channels and number of blocks of each stage.
TINY = ((96, 3), (192, 3), (384, 9), (768, 3))
DROP_RATE = 0.1  # of the last block (table 5); it rises linearly from 0

gelu = partial(nnx.gelu, approximate=False)
normal = nnx.initializers.truncated_normal(0.02)


class ConvNeXt(SequentialNetwork):
    """ConvNeXt-T, with layer norm and GELU.

    | layer                            | output   |
    |----------------------------------|----------|
    | conv 4×4, stride 4, norm         | 56×56×96 |
    | 3 blocks                         | 56×56×96 |
    | norm, conv 2×2, stride 2         | 28×28×192|
    | 3 blocks                         | 28×28×192|
    | norm, conv 2×2, stride 2         | 14×14×384|
    | 9 blocks                         | 14×14×384|
    | norm, conv 2×2, stride 2         | 7×7×768  |
    | 3 blocks                         | 7×7×768  |
    | global average, norm, dense      | 1000     |

    References:
      Liu et al. 2022, *A ConvNet for the 2020s*, §2, table 9; initial weights as in appendix A.1.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        total = sum(count for _, count in TINY)
        downsamples, stages, channels, index = [], [], input_shape[2], 0
        for number, (outputs, count) in enumerate(TINY):
            build = Downsample if number else Stem
            downsamples.append(build(channels, outputs, rngs=rngs))
            rates = [DROP_RATE * (index + block) / (total - 1) for block in range(count)]
            stages.append(nnx.Sequential(*(Block(outputs, rate, rngs=rngs) for rate in rates)))
            channels, index = outputs, index + count
        self.downsamples = nnx.List(downsamples)
        self.stages = nnx.List(stages)
        self.pool = GlobalAvgPool()
        self.norm = _norm(channels, rngs)
        self.out = Linear(channels, num_classes, kernel_init=normal, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        pairs = zip(self.downsamples, self.stages, strict=True)
        body = (layer for pair in pairs for layer in pair)
        return (*body, self.pool, self.norm, self.out)


class Stem(nnx.Module):
    """A convolution over patches of 4×4 pixels, then layer norm."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.conv = Conv(inputs, outputs, 4, 4, 0, kernel_init=normal, rngs=rngs)
        self.norm = _norm(outputs, rngs)

    def __call__(self, images: Array) -> Array:
        return self.norm(self.conv(images))


class Downsample(nnx.Module):
    """Layer norm, then a convolution over patches of 2×2 pixels."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.norm = _norm(inputs, rngs)
        self.conv = Conv(inputs, outputs, 2, 2, 0, kernel_init=normal, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return self.conv(self.norm(x))


class Block(nnx.Module):
    """Depthwise convolution 7×7, layer norm, and two dense layers over the channels of each pixel.

    References:
      Liu et al. 2022, figure 4; the layer scale begins at 1e-6 (table 5).
    """

    def __init__(self, channels: int, drop_rate: float, *, rngs: nnx.Rngs):
        self.depthwise = Conv(
            channels, channels, 7, feature_group_count=channels, kernel_init=normal, rngs=rngs
        )
        self.norm = _norm(channels, rngs)
        self.expand = Linear(channels, 4 * channels, kernel_init=normal, rngs=rngs)
        self.project = Linear(4 * channels, channels, kernel_init=normal, rngs=rngs)
        self.layer_scale = LayerScale(channels, 1e-6)
        self.stochastic_depth = StochasticDepth(drop_rate, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        y = self.project(gelu(self.expand(self.norm(self.depthwise(x)))))
        return x + self.stochastic_depth(self.layer_scale(y))


def _norm(channels: int, rngs: nnx.Rngs) -> LayerNorm:
    return LayerNorm(channels, epsilon=1e-6, rngs=rngs)
