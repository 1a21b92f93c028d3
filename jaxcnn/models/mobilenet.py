"""MobileNetV2 and MobileNetV3-Large."""

from dataclasses import dataclass
from functools import partial

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.inverted_residual import InvertedResidual
from jaxcnn.models.layers import ConvNorm, Dropout, GlobalAvgPool
from jaxcnn.models.residual import Activation, SqueezeExcite
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Sandler et al. 2018, table 2: expansion, output channels, number of blocks, stride of the first.
V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(SequentialNetwork):
    """MobileNetV2, with ReLU6.

    | layer                        | output     |
    |------------------------------|------------|
    | conv 3×3, stride 2           | 112×112×32 |
    | inverted residuals           | 112×112×16 |
    | inverted residuals, stride 2 | 56×56×24   |
    | inverted residuals, stride 2 | 28×28×32   |
    | inverted residuals, stride 2 | 14×14×64   |
    | inverted residuals           | 14×14×96   |
    | inverted residuals, stride 2 | 7×7×160    |
    | inverted residuals           | 7×7×320    |
    | conv 1×1                     | 7×7×1280   |
    | global average, dropout 0.2  | 1280       |
    | dense                        | 1000       |

    References:
      Sandler et al. 2018, *MobileNetV2: Inverted Residuals and Linear Bottlenecks*, table 2.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = partial(ConvNorm, activation=nnx.relu6, rngs=rngs)
        self.stem = conv(input_shape[2], 32, 3, 2)
        stages, channels = [], 32
        for expansion, outputs, count, strides in V2_STAGES:
            blocks = []
            for number in range(count):
                blocks.append(
                    InvertedResidual(
                        channels,
                        outputs,
                        width=channels * expansion,
                        kernel=3,
                        strides=1 if number else strides,
                        conv=conv,
                        rngs=rngs,
                    )
                )
                channels = outputs
            stages.append(nnx.Sequential(*blocks))
        self.stages = nnx.Sequential(*stages)
        self.last = conv(channels, 1280, 1)
        self.pool = GlobalAvgPool()
        self.dropout = Dropout(0.2, rngs=rngs)
        self.out = Linear(1280, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.stem, self.stages, self.last, self.pool, self.dropout, self.out)


@dataclass(frozen=True)
class V3Block:
    """A row of Howard et al. 2019, table 1.

    Attributes:
      kernel: side of the depthwise convolution.
      width: its number of channels.
      outputs: the number of channels of the block.
      activation: of the convolutions.
      excites: whether the block has squeeze and excitation.
      strides: of the depthwise convolution.
    """

    kernel: int
    width: int
    outputs: int
    activation: Activation
    excites: bool = False
    strides: int = 1


relu, swish = nnx.relu, nnx.hard_swish

# Howard et al. 2019, table 1; a stage is a size of the feature map and a number of channels.
V3_LARGE_STAGES = (
    (V3Block(3, 16, 16, relu),),
    (V3Block(3, 64, 24, relu, strides=2), V3Block(3, 72, 24, relu)),
    (
        V3Block(5, 72, 40, relu, excites=True, strides=2),
        V3Block(5, 120, 40, relu, excites=True),
        V3Block(5, 120, 40, relu, excites=True),
    ),
    (
        V3Block(3, 240, 80, swish, strides=2),
        V3Block(3, 200, 80, swish),
        V3Block(3, 184, 80, swish),
        V3Block(3, 184, 80, swish),
    ),
    (V3Block(3, 480, 112, swish, excites=True), V3Block(3, 672, 112, swish, excites=True)),
    (
        V3Block(5, 672, 160, swish, excites=True, strides=2),
        V3Block(5, 960, 160, swish, excites=True),
        V3Block(5, 960, 160, swish, excites=True),
    ),
)


class MobileNetV3(SequentialNetwork):
    """MobileNetV3-Large, with ReLU and hard swish.

    | layer                              | output     |
    |------------------------------------|------------|
    | conv 3×3, stride 2                 | 112×112×16 |
    | the blocks of `V3_LARGE_STAGES`    | 7×7×160    |
    | conv 1×1                           | 7×7×960    |
    | global average                     | 960        |
    | dense, hard swish, dropout 0.2     | 1280       |
    | dense                              | 1000       |

    Squeeze and excitation reduces the channels to a quarter, rounded by `round_channels`; its gate
    is the hard sigmoid.

    References:
      Howard et al. 2019, *Searching for MobileNetV3*, §5, table 1.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = partial(ConvNorm, epsilon=1e-3, momentum=0.99, rngs=rngs)
        self.stem = conv(input_shape[2], 16, 3, 2, activation=swish)
        stages, channels = [], 16
        for rows in V3_LARGE_STAGES:
            blocks = []
            for row in rows:
                blocks.append(_v3_block(channels, row, conv, rngs))
                channels = row.outputs
            stages.append(nnx.Sequential(*blocks))
        self.stages = nnx.Sequential(*stages)
        self.last = conv(channels, 960, 1, activation=swish)
        self.pool = GlobalAvgPool()
        self.dense = Linear(960, 1280, rngs=rngs)
        self.dropout = Dropout(0.2, rngs=rngs)
        self.out = Linear(1280, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        body = (self.stem, self.stages, self.last, self.pool)
        return (*body, self.dense, swish, self.dropout, self.out)


def round_channels(channels: float) -> int:
    """The nearest multiple of 8, or the next one if the nearest is less than nine tenths.

    As in the authors' code, ``_make_divisible``.

    >>> round_channels(20), round_channels(18), round_channels(30)
    (24, 24, 32)
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def _v3_block(
    inputs: int, row: V3Block, conv: partial[ConvNorm], rngs: nnx.Rngs
) -> InvertedResidual:
    excite = None
    if row.excites:
        excite = SqueezeExcite(
            row.width, round_channels(row.width // 4), gate=nnx.hard_sigmoid, rngs=rngs
        )
    return InvertedResidual(
        inputs,
        row.outputs,
        width=row.width,
        kernel=row.kernel,
        strides=row.strides,
        conv=partial(conv, activation=row.activation),
        excite=excite,
        rngs=rngs,
    )
