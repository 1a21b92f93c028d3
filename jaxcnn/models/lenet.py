"""LeNet-5 and its modern small cousin."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn import ops
from jaxcnn.models.layers import AvgPool, Conv, Linear, flat_size, flatten


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
        self.c1 = Conv(input_shape[2], 6, 5, padding="VALID", rngs=rngs)
        self.s2 = AvgPool()
        self.c3 = Conv(6, 16, 5, padding="VALID", rngs=rngs)
        self.s4 = AvgPool()
        self.c5 = Conv(16, 120, 5, padding="VALID", rngs=rngs)
        self.f6 = Linear(flat_size(self.convolve, input_shape), 84, rngs=rngs)
        self.out = self.output(num_classes, rngs)

    def output(self, num_classes: int, rngs: nnx.Rngs) -> nnx.Module:
        return Linear(84, num_classes, rngs=rngs)

    def convolve(self, images: Array) -> Array:
        x = self.s2(nnx.tanh(self.c1(images)))
        x = self.s4(nnx.tanh(self.c3(x)))
        return nnx.tanh(self.c5(x))

    def __call__(self, images: Array) -> Array:
        return self.out(nnx.tanh(self.f6(flatten(self.convolve(images)))))


class LeNet5RBF(LeNet5):
    """LeNet-5 with its original output: Euclidean radial basis functions, their centres fixed (C1, eq. 7).

    The paper draws the centres as pictures of the characters, 7×12 pixels of ±1, and names random ±1 as the other
    choice; these are random. A unit answers with a squared distance, so its negative is the logit (eq. 9).
    """

    def output(self, num_classes: int, rngs: nnx.Rngs) -> nnx.Module:
        return RBF(84, num_classes, rngs=rngs)


class RBF(nnx.Module):
    """``-ops.rbf(features, centres)``, the centres fixed."""

    def __init__(self, features: int, outputs: int, *, rngs: nnx.Rngs):
        self.centres = nnx.Variable(
            jax.random.rademacher(rngs.params(), (outputs, features), jnp.float32)
        )

    def __call__(self, features: Array) -> Array:
        return -ops.rbf(features, self.centres[...])


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
        self.conv1 = Conv(input_shape[2], 6, 3, padding="VALID", rngs=rngs)
        self.pool1 = AvgPool()
        self.conv2 = Conv(6, 16, 3, padding="VALID", rngs=rngs)
        self.pool2 = AvgPool()
        self.dense1 = Linear(flat_size(self.convolve, input_shape), 120, rngs=rngs)
        self.dense2 = Linear(120, 84, rngs=rngs)
        self.out = Linear(84, num_classes, rngs=rngs)

    def convolve(self, images: Array) -> Array:
        x = self.pool1(nnx.relu(self.conv1(images)))
        return self.pool2(nnx.relu(self.conv2(x)))

    def __call__(self, images: Array) -> Array:
        x = nnx.relu(self.dense1(flatten(self.convolve(images))))
        return self.out(nnx.relu(self.dense2(x)))
