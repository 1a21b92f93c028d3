"""ResNet, for ImageNet and for 32×32 images, and ResNeXt."""

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import ConvNorm, GlobalAvgPool, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork


class BasicBlock(nnx.Module):
    """Two 3×3 convolutions with a shortcut (He et al. 2016, figure 5 left)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, strides: int, *, rngs: nnx.Rngs):
        self.conv1 = ConvNorm(inputs, width, 3, strides, rngs=rngs)
        self.conv2 = ConvNorm(width, width, 3, activation=None, rngs=rngs)
        self.shortcut = shortcut(inputs, width, strides, rngs)

    def __call__(self, x: Array) -> Array:
        y = self.conv2(self.conv1(x))
        return nnx.relu(y + (self.shortcut(x) if self.shortcut else x))


class Bottleneck(nnx.Module):
    """Convolutions 1×1, 3×3 and 1×1 with a shortcut (He et al. 2016, figure 5 right).

    The stride is in the 3×3 convolution, as in all current libraries; in the paper it is in the
    first 1×1 convolution.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, strides: int, *, rngs: nnx.Rngs):
        outputs = width * self.expansion
        self.conv1 = ConvNorm(inputs, width, 1, rngs=rngs)
        self.conv2 = ConvNorm(width, width, 3, strides, rngs=rngs)
        self.conv3 = ConvNorm(width, outputs, 1, activation=None, rngs=rngs)
        self.shortcut = shortcut(inputs, outputs, strides, rngs)

    def __call__(self, x: Array) -> Array:
        y = self.conv3(self.conv2(self.conv1(x)))
        return nnx.relu(y + (self.shortcut(x) if self.shortcut else x))


class GroupedBottleneck(Bottleneck):
    """A bottleneck of twice the width whose 3×3 convolution has 32 groups of channels.

    References:
      Xie et al. 2017, *Aggregated Residual Transformations for Deep Neural Networks*, figure 3c.
    """

    GROUPS = 32

    def __init__(self, inputs: int, width: int, strides: int, *, rngs: nnx.Rngs):
        inner, outputs = 2 * width, width * self.expansion
        self.conv1 = ConvNorm(inputs, inner, 1, rngs=rngs)
        self.conv2 = ConvNorm(inner, inner, 3, strides, groups=self.GROUPS, rngs=rngs)
        self.conv3 = ConvNorm(inner, outputs, 1, activation=None, rngs=rngs)
        self.shortcut = shortcut(inputs, outputs, strides, rngs)


def shortcut(inputs: int, outputs: int, strides: int, rngs: nnx.Rngs) -> ConvNorm | None:
    """A 1×1 convolution where the shape changes (§3.3, option B), None for the identity."""
    if inputs == outputs and strides == 1:
        return None
    return ConvNorm(inputs, outputs, 1, strides, activation=None, rngs=rngs)


# He et al. 2016, table 1: the block, and the number of blocks in each stage.
DEPTHS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


class ResNet(SequentialNetwork):
    """ResNet with 18, 34, 50, 101 or 152 layers, or ResNeXt with 50, 101 or 152 (32×4d).

    | layer                         | output   | for 32×32 images     |
    |-------------------------------|----------|----------------------|
    | conv 7×7, stride 2            | 112×112  | conv 3×3, 32×32      |
    | max pool 3×3, stride 2        | 56×56    | –                    |
    | blocks of width 64            | 56×56    | 32×32                |
    | blocks of width 128           | 28×28    | 16×16                |
    | blocks of width 256           | 14×14    | 8×8                  |
    | blocks of width 512           | 7×7      | 4×4                  |
    | global average, dense         | 1000     | 10                   |

    The first block of each width, except the first width, has stride 2. The blocks of ResNeXt are
    `GroupedBottleneck`s.

    References:
      He et al. 2016, *Deep Residual Learning for Image Recognition*, §3.3, table 1; Xie et al.
      2017, *Aggregated Residual Transformations for Deep Neural Networks*, table 1.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        depth: int,
        small_images: bool = False,
        grouped: bool = False,
        rngs: nnx.Rngs,
    ):
        block, counts = DEPTHS[depth]
        block = GroupedBottleneck if grouped else block
        kernel, strides = (3, 1) if small_images else (7, 2)
        self.conv1 = ConvNorm(input_shape[2], 64, kernel, strides, rngs=rngs)
        self.pool1 = None if small_images else MaxPool(3, 2, 1)
        blocks, channels = [], 64
        for stage, count in enumerate(counts):
            for number in range(count):
                width = 64 * 2**stage
                strides = 2 if stage > 0 and number == 0 else 1
                blocks.append(block(channels, width, strides, rngs=rngs))
                channels = width * block.expansion
        self.blocks = nnx.Sequential(*blocks)
        self.pool5 = GlobalAvgPool()
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        pool1 = (self.pool1,) if self.pool1 else ()
        return (self.conv1, *pool1, self.blocks, self.pool5, self.out)
