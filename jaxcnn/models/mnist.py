"""Two small networks that tutorials train on MNIST."""

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Conv, Dropout, MaxPool
from jaxcnn.models.shapes import flat_size, flatten


class MnistCNN(nnx.Module):
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
        self.dense = Linear(flat_size(self.convolve, input_shape), 128, rngs=rngs)
        self.out = Linear(128, num_classes, rngs=rngs)

    def convolve(self, images: Array) -> Array:
        """The feature map of the last pool, ``[N, H, W, 64]``."""
        x = self.pool1(nnx.relu(self.conv1(images)))
        return self.pool2(nnx.relu(self.conv2(x)))

    def __call__(self, images: Array) -> Array:
        return self.out(nnx.relu(self.dense(flatten(self.convolve(images)))))


class DeepMnist(nnx.Module):
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
        self.dense = Linear(flat_size(self.convolve, input_shape), 1024, rngs=rngs)
        self.dropout = Dropout(0.5, rngs=rngs)
        self.out = Linear(1024, num_classes, rngs=rngs)

    def convolve(self, images: Array) -> Array:
        """The feature map of the last pool, ``[N, H, W, 64]``."""
        x = self.pool1(nnx.relu(self.conv1(images)))
        return self.pool2(nnx.relu(self.conv2(x)))

    def __call__(self, images: Array) -> Array:
        return self.out(self.dropout(nnx.relu(self.dense(flatten(self.convolve(images))))))
