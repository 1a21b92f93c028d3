"""The small MNIST network that a first lesson trains."""

from flax import nnx
from jax import Array

from jaxcnn.models.layers import Conv, features, flatten
from jaxcnn.ops import max_pool


class MnistCNN(nnx.Module):
    """A small sequential CNN (system D1: Scaler Topics, *GPUs and CNN*, which leaves the sizes open).

    | layer         | output   |
    |---------------|----------|
    | conv 3×3 ReLU | 26×26×32 |
    | max pool      | 13×13×32 |
    | conv 3×3 ReLU | 11×11×64 |
    | max pool      | 5×5×64   |
    | dense ReLU    | 128      |
    | dense         | 10       |
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        *size, channels = input_shape
        rows, columns = (((side - 2) // 2 - 2) // 2 for side in size)
        self.conv1 = Conv(channels, 32, (3, 3), padding="VALID", rngs=rngs)
        self.conv2 = Conv(32, 64, (3, 3), padding="VALID", rngs=rngs)
        self.dense = nnx.Linear(features(rows, columns, 64), 128, rngs=rngs)
        self.out = nnx.Linear(128, num_classes, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        x = max_pool(nnx.relu(self.conv1(images)))
        x = max_pool(nnx.relu(self.conv2(x)))
        return self.out(nnx.relu(self.dense(flatten(x))))
