"""RegNetY-400MF."""

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import ConvNorm, GlobalAvgPool
from jaxcnn.models.residual import SqueezeExcite
from jaxcnn.models.resnet import shortcut
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Radosavovic et al. 2020, figure 20: the width and the number of blocks of each stage.
Y_400MF = ((48, 1), (104, 3), (208, 6), (440, 6))
GROUP_WIDTH = 8


class RegNetY(SequentialNetwork):
    """RegNetY-400MF.

    | layer                         | output     |
    |-------------------------------|------------|
    | conv 3×3, stride 2            | 112×112×32 |
    | 1 block                       | 56×56×48   |
    | 3 blocks                      | 28×28×104  |
    | 6 blocks                      | 14×14×208  |
    | 6 blocks                      | 7×7×440    |
    | global average, dense         | 1000       |

    The first block of each stage has stride 2.

    References:
      Radosavovic et al. 2020, *Designing Network Design Spaces*, §3 and §5, figure 20.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.stem = ConvNorm(input_shape[2], 32, 3, 2, rngs=rngs)
        stages, channels = [], 32
        for width, count in Y_400MF:
            blocks = []
            for number in range(count):
                blocks.append(Block(channels, width, 1 if number else 2, rngs=rngs))
                channels = width
            stages.append(nnx.Sequential(*blocks))
        self.stages = nnx.Sequential(*stages)
        self.pool = GlobalAvgPool()
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.stem, self.stages, self.pool, self.out)


class Block(nnx.Module):
    """Convolutions 1×1, 3×3 in groups of `GROUP_WIDTH` channels, and 1×1, with excitation.

    Squeeze and excitation reduces the channels to a quarter of the block's input.
    """

    def __init__(self, inputs: int, width: int, strides: int, *, rngs: nnx.Rngs):
        self.conv1 = ConvNorm(inputs, width, 1, rngs=rngs)
        self.conv2 = ConvNorm(width, width, 3, strides, groups=width // GROUP_WIDTH, rngs=rngs)
        self.excite = SqueezeExcite(width, inputs // 4, rngs=rngs)
        self.conv3 = ConvNorm(width, width, 1, activation=None, rngs=rngs)
        self.shortcut = shortcut(inputs, width, strides, rngs)

    def __call__(self, x: Array) -> Array:
        y = self.conv3(self.excite(self.conv2(self.conv1(x))))
        return nnx.relu(y + (self.shortcut(x) if self.shortcut else x))
