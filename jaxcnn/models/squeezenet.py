"""SqueezeNet 1.1."""

from flax import nnx
from jax import Array

from jaxcnn.models.layers import Branches, Conv, ConvReLU, Dropout, GlobalAvgPool, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Iandola et al. 2016, table 1, as changed in version 1.1: channels of the squeeze convolution, and
# of each of the two expand convolutions; stages are separated by max pools 3×3 with stride 2.
STAGES = (
    ((16, 64), (16, 64)),
    ((32, 128), (32, 128)),
    ((48, 192), (48, 192), (64, 256), (64, 256)),
)


class SqueezeNet(SequentialNetwork):
    """SqueezeNet 1.1: biases, no batch norm.

    | layer                                   | output     |
    |-----------------------------------------|------------|
    | conv 3×3, stride 2, no padding, ReLU    | 111×111×64 |
    | max pool 3×3, stride 2                  | 55×55×64   |
    | two fire modules                        | 55×55×128  |
    | max pool 3×3, stride 2                  | 27×27×128  |
    | two fire modules                        | 27×27×256  |
    | max pool 3×3, stride 2                  | 13×13×256  |
    | four fire modules                       | 13×13×512  |
    | dropout 0.5, conv 1×1 to classes, ReLU  | 13×13×1000 |
    | global average                          | 1000       |

    An incomplete last window of a max pool counts.

    References:
      Iandola et al. 2016, *SqueezeNet: AlexNet-level Accuracy with 50x Fewer Parameters and <0.5MB
      Model Size*, §3; the authors' repository, *SqueezeNet v1.1*.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.conv1 = ConvReLU(input_shape[2], 64, 3, 2, "VALID", rngs=rngs)
        stages, channels = [], 64
        for widths in STAGES:
            fires = []
            for squeeze, expand in widths:
                fires.append(Fire(channels, squeeze, expand, rngs=rngs))
                channels = 2 * expand
            stages.append(nnx.Sequential(MaxPool(3, 2, "CEIL"), *fires))
        self.stages = nnx.Sequential(*stages)
        self.dropout = Dropout(0.5, rngs=rngs)
        normal = nnx.initializers.normal(0.01)
        self.out = Conv(channels, num_classes, 1, kernel_init=normal, rngs=rngs)
        self.pool = GlobalAvgPool()

    def sequence(self) -> tuple[Layer, ...]:
        return (self.conv1, self.stages, self.dropout, self.out, nnx.relu, self.pool)


class Fire(nnx.Module):
    """A convolution 1×1 to few channels, then convolutions 1×1 and 3×3, concatenated (§3.2)."""

    def __init__(self, inputs: int, squeeze: int, expand: int, *, rngs: nnx.Rngs):
        self.squeeze = ConvReLU(inputs, squeeze, 1, rngs=rngs)
        self.expand = Branches(
            ConvReLU(squeeze, expand, 1, rngs=rngs), ConvReLU(squeeze, expand, 3, rngs=rngs)
        )

    def __call__(self, x: Array) -> Array:
        return self.expand(self.squeeze(x))
