"""LeNet-5 and its modern small cousin."""

from flax import nnx
from jax import Array

from jaxcnn.models.layers import Conv, features, flatten
from jaxcnn.ops import avg_pool


class LeNet5(nnx.Module):
    """LeNet-5 (system C1: LeCun et al. 1998, *Gradient-Based Learning Applied to Document Recognition*, §II.B).

    With all C3 connections, plain average pooling and a dense output in place of the RBF units.

    | layer           | output   |
    |-----------------|----------|
    | C1 conv 5×5 tanh| 28×28×6  |
    | S2 average pool | 14×14×6  |
    | C3 conv 5×5 tanh| 10×10×16 |
    | S4 average pool | 5×5×16   |
    | C5 conv 5×5 tanh| 1×1×120  |
    | F6 dense tanh   | 84       |
    | dense           | 10       |
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        *size, channels = input_shape
        rows, columns = (((side - 4) // 2 - 4) // 2 - 4 for side in size)
        self.c1 = Conv(channels, 6, (5, 5), padding="VALID", rngs=rngs)
        self.c3 = Conv(6, 16, (5, 5), padding="VALID", rngs=rngs)
        self.c5 = Conv(16, 120, (5, 5), padding="VALID", rngs=rngs)
        self.f6 = nnx.Linear(features(rows, columns, 120), 84, rngs=rngs)
        self.out = nnx.Linear(84, num_classes, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        x = avg_pool(nnx.tanh(self.c1(images)))
        x = avg_pool(nnx.tanh(self.c3(x)))
        x = flatten(nnx.tanh(self.c5(x)))
        return self.out(nnx.tanh(self.f6(x)))


class LeNetLike(nnx.Module):
    """LeNet with 3×3 kernels and ReLU (system C2: Frigaard, ITMAL lesson 09).

    | layer             | output   |
    |-------------------|----------|
    | conv 3×3 ReLU     | 30×30×6  |
    | average pool      | 15×15×6  |
    | conv 3×3 ReLU     | 13×13×16 |
    | average pool      | 6×6×16   |
    | flatten           | 576      |
    | dense ReLU        | 120      |
    | dense ReLU        | 84       |
    | dense             | 10       |
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        *size, channels = input_shape
        rows, columns = (((side - 2) // 2 - 2) // 2 for side in size)
        self.conv1 = Conv(channels, 6, (3, 3), padding="VALID", rngs=rngs)
        self.conv2 = Conv(6, 16, (3, 3), padding="VALID", rngs=rngs)
        self.dense1 = nnx.Linear(features(rows, columns, 16), 120, rngs=rngs)
        self.dense2 = nnx.Linear(120, 84, rngs=rngs)
        self.out = nnx.Linear(84, num_classes, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        x = avg_pool(nnx.relu(self.conv1(images)))
        x = avg_pool(nnx.relu(self.conv2(x)))
        x = nnx.relu(self.dense1(flatten(x)))
        return self.out(nnx.relu(self.dense2(x)))
