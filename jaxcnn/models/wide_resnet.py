"""WideResNet-28-10, for 32×32 images."""

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Conv, GlobalAvgPool, he_normal
from jaxcnn.models.residual import NormReLU
from jaxcnn.models.sequential import Layer, SequentialNetwork

DEPTH, WIDENING = 28, 10


class WideResNet(SequentialNetwork):
    """WideResNet-28-10, without dropout.

    | layer                              | output    |
    |------------------------------------|-----------|
    | conv 3×3                           | 32×32×16  |
    | 4 blocks                           | 32×32×160 |
    | 4 blocks, the first with stride 2  | 16×16×320 |
    | 4 blocks, the first with stride 2  | 8×8×640   |
    | batch norm, ReLU                   | 8×8×640   |
    | global average, dense              | 10        |

    References:
      Zagoruyko & Komodakis 2016, *Wide Residual Networks*, §2, table 1, and the authors' code.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.stem = conv(input_shape[2], 16, 3, rngs=rngs)
        blocks, channels = [], 16
        for stage in range(3):
            for number in range((DEPTH - 4) // 6):
                width = 16 * WIDENING * 2**stage
                strides = 2 if stage > 0 and number == 0 else 1
                blocks.append(Block(channels, width, strides, rngs=rngs))
                channels = width
        self.blocks = nnx.Sequential(*blocks)
        self.norm = NormReLU(channels, rngs=rngs)
        self.pool = GlobalAvgPool()
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.stem, self.blocks, self.norm, self.pool, self.out)


class Block(nnx.Module):
    """Batch norm, ReLU and a 3×3 convolution, twice, with a shortcut.

    Where the shape changes, the shortcut is a 1×1 convolution of the first ReLU's output.
    """

    def __init__(self, inputs: int, width: int, strides: int, *, rngs: nnx.Rngs):
        self.norm1 = NormReLU(inputs, rngs=rngs)
        self.conv1 = conv(inputs, width, 3, strides, rngs=rngs)
        self.norm2 = NormReLU(width, rngs=rngs)
        self.conv2 = conv(width, width, 3, rngs=rngs)
        changes = inputs != width or strides != 1
        self.shortcut = conv(inputs, width, 1, strides, rngs=rngs) if changes else None

    def __call__(self, x: Array) -> Array:
        y = self.norm1(x)
        x = self.shortcut(y) if self.shortcut else x
        return x + self.conv2(self.norm2(self.conv1(y)))


def conv(inputs: int, outputs: int, kernel: int, strides: int = 1, *, rngs: nnx.Rngs) -> Conv:
    """A convolution without a bias."""
    return Conv(inputs, outputs, kernel, strides, use_bias=False, kernel_init=he_normal, rngs=rngs)
