"""Two small networks that tutorials train on MNIST."""

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Conv, Dropout, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork, in_sequence
from jaxcnn.models.shapes import flat_size, flatten


class MnistCNN(SequentialNetwork):
    """A small sequential CNN; its source does not give the sizes of the layers.

    | layer         | output   |
    |---------------|----------|
    | conv 3×3 ReLU | 26×26×32 |
    | max pool      | 13×13×32 |
    | conv 3×3 ReLU | 11×11×64 |
    | max pool      | 5×5×64   |
    | dense ReLU    | 128      |
    | dense         | 10       |

    References:
      Scaler Topics, *GPUs and CNN*.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.conv1 = Conv(input_shape[2], 32, 3, padding="VALID", rngs=rngs)
        self.pool1 = MaxPool()
        self.conv2 = Conv(32, 64, 3, padding="VALID", rngs=rngs)
        self.pool2 = MaxPool()
        self.dense = Linear(
            flat_size(in_sequence(self.convolutions()), input_shape), 128, rngs=rngs
        )
        self.out = Linear(128, num_classes, rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last pool, whose feature map is ``[N, H, W, 64]``."""
        return (self.conv1, nnx.relu, self.pool1, self.conv2, nnx.relu, self.pool2)

    def sequence(self) -> tuple[Layer, ...]:
        return (*self.convolutions(), flatten, self.dense, nnx.relu, self.out)


class DeepMnist(SequentialNetwork):
    """The deep MNIST network of a TensorFlow tutorial.

    | layer               | output   |
    |---------------------|----------|
    | conv 5×5 same ReLU  | 28×28×32 |
    | max pool            | 14×14×32 |
    | conv 5×5 same ReLU  | 14×14×64 |
    | max pool            | 7×7×64   |
    | dense ReLU, dropout | 1024     |
    | dense               | 10       |

    References:
      TensorFlow's tutorial *Deep MNIST for Experts*, as used by IBM DL0122EN, module 2.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.conv1 = Conv(input_shape[2], 32, 5, rngs=rngs)
        self.pool1 = MaxPool()
        self.conv2 = Conv(32, 64, 5, rngs=rngs)
        self.pool2 = MaxPool()
        self.dense = Linear(
            flat_size(in_sequence(self.convolutions()), input_shape), 1024, rngs=rngs
        )
        self.dropout = Dropout(0.5, rngs=rngs)
        self.out = Linear(1024, num_classes, rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last pool, whose feature map is ``[N, H, W, 64]``."""
        return (self.conv1, nnx.relu, self.pool1, self.conv2, nnx.relu, self.pool2)

    def sequence(self) -> tuple[Layer, ...]:
        return (*self.convolutions(), flatten, self.dense, nnx.relu, self.dropout, self.out)
