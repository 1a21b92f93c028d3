"""The network of TensorFlow's CIFAR-10 tutorial."""

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Conv, LocalResponseNorm, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork, in_sequence
from jaxcnn.models.shapes import flat_size, flatten

constant, normal = nnx.initializers.constant, nnx.initializers.truncated_normal


class CifarTutorial(SequentialNetwork):
    """The network of TensorFlow's CIFAR-10 tutorial, with its initial weights.

    | layer                  | output   |
    |------------------------|----------|
    | conv 5×5 same ReLU     | 24×24×64 |
    | max pool 3×3, stride 2 | 12×12×64 |
    | LRN                    | 12×12×64 |
    | conv 5×5 same ReLU     | 12×12×64 |
    | LRN                    | 12×12×64 |
    | max pool 3×3, stride 2 | 6×6×64   |
    | dense ReLU             | 384      |
    | dense ReLU             | 192      |
    | dense                  | 10       |

    References:
      TensorFlow's CIFAR-10 tutorial, `cifar10.py`, as used by IBM DL0122EN, module 2.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.conv1 = Conv(input_shape[2], 64, 5, kernel_init=normal(0.05), rngs=rngs)
        self.pool1 = MaxPool(3, 2, "SAME")
        self.norm1 = LocalResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
        self.conv2 = Conv(64, 64, 5, kernel_init=normal(0.05), bias_init=constant(0.1), rngs=rngs)
        self.norm2 = self.norm1
        self.pool2 = MaxPool(3, 2, "SAME")
        features = flat_size(in_sequence(self.convolutions()), input_shape)
        self.dense1 = Linear(
            features, 384, kernel_init=normal(0.04), bias_init=constant(0.1), rngs=rngs
        )
        self.dense2 = Linear(384, 192, kernel_init=normal(0.04), bias_init=constant(0.1), rngs=rngs)
        self.out = Linear(192, num_classes, kernel_init=normal(1 / 192), rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last pool, whose feature map is ``[N, H, W, 64]``."""
        first = (self.conv1, nnx.relu, self.pool1, self.norm1)
        return (*first, self.conv2, nnx.relu, self.norm2, self.pool2)

    def sequence(self) -> tuple[Layer, ...]:
        hidden = (self.dense1, nnx.relu, self.dense2, nnx.relu)
        return (*self.convolutions(), flatten, *hidden, self.out)
