"""EfficientNet-B0 and EfficientNetV2-S."""

from dataclasses import dataclass
from functools import partial

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.inverted_residual import FusedInvertedResidual, InvertedResidual
from jaxcnn.models.layers import ConvNorm, Dropout, GlobalAvgPool
from jaxcnn.models.residual import SqueezeExcite
from jaxcnn.models.sequential import Layer, SequentialNetwork


@dataclass(frozen=True)
class Stage:
    """Successive inverted residuals.

    Attributes:
      expansion: of the channels within a block.
      outputs: the number of channels.
      count: the number of blocks.
      strides: of the first block.
      kernel: side of the depthwise or the fused convolutions.
      fused: the blocks are `FusedInvertedResidual`s, without squeeze and excitation.
    """

    expansion: int
    outputs: int
    count: int
    strides: int
    kernel: int = 3
    fused: bool = False


@dataclass(frozen=True)
class Variant:
    """What distinguishes the networks of the family.

    Attributes:
      stem: the number of channels of the first convolution.
      stages: the blocks.
      epsilon: of batch norm; it belongs to the trained weights.
    """

    stem: int
    stages: tuple[Stage, ...]
    epsilon: float


# Tan & Le 2019, table 1.
B0 = Variant(
    stem=32,
    stages=(
        Stage(1, 16, 1, 1),
        Stage(6, 24, 2, 2),
        Stage(6, 40, 2, 2, kernel=5),
        Stage(6, 80, 3, 2),
        Stage(6, 112, 3, 1, kernel=5),
        Stage(6, 192, 4, 2, kernel=5),
        Stage(6, 320, 1, 1),
    ),
    epsilon=1e-5,
)
# Tan & Le 2021, table 4, with the last convolution of 1280 channels.
V2_S = Variant(
    stem=24,
    stages=(
        Stage(1, 24, 2, 1, fused=True),
        Stage(4, 48, 4, 2, fused=True),
        Stage(4, 64, 4, 2, fused=True),
        Stage(4, 128, 6, 2),
        Stage(6, 160, 9, 1),
        Stage(6, 256, 15, 2),
    ),
    epsilon=1e-3,
)


class EfficientNet(SequentialNetwork):
    """EfficientNet-B0 or EfficientNetV2-S, with SiLU.

    A convolution 3×3 with stride 2, the stages of the `Variant`, a convolution 1×1 to 1280
    channels, a global average pool, dropout 0.2, and a dense layer of 1000. Squeeze and excitation
    reduces the channels to a quarter of the block's input. The rate of stochastic depth rises
    linearly from 0 in the first block to 0.2 after the last. Convolutions are padded by half their
    kernel on every side, as in PyTorch, not as by TensorFlow's ``SAME``.

    References:
      Tan & Le 2019, *EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks*, §4
      and §5.2; Tan & Le 2021, *EfficientNetV2: Smaller Models and Faster Training*, §3.3.
    """

    DROP_RATE = 0.2

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        variant: Variant,
        rngs: nnx.Rngs,
    ):
        conv = partial(
            ConvNorm, activation=nnx.silu, epsilon=variant.epsilon, momentum=0.99, rngs=rngs
        )
        self.stem = conv(input_shape[2], variant.stem, 3, 2)
        total = sum(stage.count for stage in variant.stages)
        stages, channels, index = [], variant.stem, 0
        for stage in variant.stages:
            blocks = []
            for number in range(stage.count):
                strides, drop_rate = 1 if number else stage.strides, self.DROP_RATE * index / total
                blocks.append(_block(channels, strides, stage, conv, drop_rate, rngs))
                channels, index = stage.outputs, index + 1
            stages.append(nnx.Sequential(*blocks))
        self.stages = nnx.Sequential(*stages)
        self.last = conv(channels, 1280, 1)
        self.pool = GlobalAvgPool()
        self.dropout = Dropout(0.2, rngs=rngs)
        self.out = Linear(1280, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.stem, self.stages, self.last, self.pool, self.dropout, self.out)


def _block(
    inputs: int,
    strides: int,
    stage: Stage,
    conv: partial[ConvNorm],
    drop_rate: float,
    rngs: nnx.Rngs,
) -> nnx.Module:
    width = inputs * stage.expansion
    if stage.fused:
        return FusedInvertedResidual(
            inputs,
            stage.outputs,
            width=width,
            kernel=stage.kernel,
            strides=strides,
            conv=conv,
            drop_rate=drop_rate,
            rngs=rngs,
        )
    return InvertedResidual(
        inputs,
        stage.outputs,
        width=width,
        kernel=stage.kernel,
        strides=strides,
        conv=conv,
        excite=SqueezeExcite(width, inputs // 4, activation=nnx.silu, rngs=rngs),
        drop_rate=drop_rate,
        rngs=rngs,
    )
