"""AlexNet."""

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Conv, Dropout, LocalResponseNorm, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork, in_sequence
from jaxcnn.models.shapes import flat_size, flatten

normal, ones = nnx.initializers.normal(0.01), nnx.initializers.ones


class AlexNet(SequentialNetwork):
    """AlexNet with its two groups and its initial weights.

    | layer                                    | output   |
    |------------------------------------------|----------|
    | conv 11×11, stride 4, ReLU, LRN          | 55×55×96 |
    | max pool 3×3, stride 2                   | 27×27×96 |
    | conv 5×5, two groups, ReLU, LRN          | 27×27×256|
    | max pool 3×3, stride 2                   | 13×13×256|
    | conv 3×3 ReLU                            | 13×13×384|
    | conv 3×3, two groups, ReLU               | 13×13×384|
    | conv 3×3, two groups, ReLU               | 13×13×256|
    | max pool 3×3, stride 2                   | 6×6×256  |
    | dropout, dense ReLU                      | 4096     |
    | dropout, dense ReLU                      | 4096     |
    | dense                                    | 1000     |

    References:
      Krizhevsky et al. 2012, *ImageNet Classification with Deep Convolutional Neural Networks*,
      §3.5 and §5.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        def conv(inputs: int, outputs: int, kernel: int, **options) -> Conv:
            return Conv(inputs, outputs, kernel, kernel_init=normal, rngs=rngs, **options)

        def dense(inputs: int) -> Linear:
            return Linear(inputs, 4096, kernel_init=normal, bias_init=ones, rngs=rngs)

        grouped = {"feature_group_count": 2, "bias_init": ones}
        self.conv1 = conv(input_shape[2], 96, 11, strides=4, padding="VALID")
        self.norm1 = LocalResponseNorm(radius=2, bias=2.0, alpha=1e-4, beta=0.75)
        self.pool1 = MaxPool(3, 2)
        self.conv2 = conv(96, 256, 5, **grouped)
        self.norm2 = self.norm1
        self.pool2 = MaxPool(3, 2)
        self.conv3 = conv(256, 384, 3)
        self.conv4 = conv(384, 384, 3, **grouped)
        self.conv5 = conv(384, 256, 3, **grouped)
        self.pool5 = MaxPool(3, 2)
        self.dropout6 = Dropout(0.5, rngs=rngs)
        self.dense6 = dense(flat_size(in_sequence(self.convolutions()), input_shape))
        self.dropout7 = Dropout(0.5, rngs=rngs)
        self.dense7 = dense(4096)
        self.out = Linear(4096, num_classes, kernel_init=normal, rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last pool, whose feature map is ``[N, H, W, 256]``."""
        first = (self.conv1, nnx.relu, self.norm1, self.pool1)
        second = (self.conv2, nnx.relu, self.norm2, self.pool2)
        third = (self.conv3, nnx.relu, self.conv4, nnx.relu, self.conv5, nnx.relu, self.pool5)
        return (*first, *second, *third)

    def sequence(self) -> tuple[Layer, ...]:
        hidden = (self.dropout6, self.dense6, nnx.relu, self.dropout7, self.dense7, nnx.relu)
        return (*self.convolutions(), flatten, *hidden, self.out)
