"""LeNet-5, and a smaller network after it."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn import ops
from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import AvgPool, Conv
from jaxcnn.models.sequential import Layer, SequentialNetwork, in_sequence
from jaxcnn.models.shapes import flat_size, flatten


class LeNet5(SequentialNetwork):
    """LeNet-5 with all C3 connections, average pools without weights, and a dense output layer.

    | layer           | output   |
    |-----------------|----------|
    | C1 conv 5×5 tanh| 28×28×6  |
    | S2 average pool | 14×14×6  |
    | C3 conv 5×5 tanh| 10×10×16 |
    | S4 average pool | 5×5×16   |
    | C5 conv 5×5 tanh| 1×1×120  |
    | F6 dense tanh   | 84       |
    | dense           | 10       |

    References:
      LeCun et al. 1998, *Gradient-Based Learning Applied to Document Recognition*, §II.B.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.c1 = Conv(input_shape[2], 6, 5, padding="VALID", rngs=rngs)
        self.s2 = AvgPool()
        self.c3 = Conv(6, 16, 5, padding="VALID", rngs=rngs)
        self.s4 = AvgPool()
        self.c5 = Conv(16, 120, 5, padding="VALID", rngs=rngs)
        self.f6 = Linear(flat_size(in_sequence(self.convolutions()), input_shape), 84, rngs=rngs)
        self.out = self.output(num_classes, rngs)

    def output(self, num_classes: int, rngs: nnx.Rngs) -> nnx.Module:
        """Builds the output layer."""
        return Linear(84, num_classes, rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last convolution, whose feature map is ``[N, H, W, 120]``."""
        first = (self.c1, nnx.tanh, self.s2)
        return (*first, self.c3, nnx.tanh, self.s4, self.c5, nnx.tanh)

    def sequence(self) -> tuple[Layer, ...]:
        return (*self.convolutions(), flatten, self.f6, nnx.tanh, self.out)


class LeNet5RBF(LeNet5):
    """LeNet-5 with its original output layer: Euclidean radial basis functions with fixed centers.

    The paper takes bitmaps of the characters as centers, 7×12 pixels of ±1, and mentions random ±1
    as an alternative; here they are random. The output of a unit is a squared distance, whose
    negative is the logit.

    References:
      LeCun et al. 1998, §II.B, equations 7 and 9.
    """

    def output(self, num_classes: int, rngs: nnx.Rngs) -> nnx.Module:
        return RBF(84, num_classes, rngs=rngs)


class RBF(nnx.Module):
    """Logits ``-ops.rbf(features, centers)``, with fixed centers ``f32[outputs, features]``."""

    def __init__(self, features: int, outputs: int, *, rngs: nnx.Rngs):
        self.centres = nnx.Variable(
            jax.random.rademacher(rngs.params(), (outputs, features), jnp.float32)
        )

    def __call__(self, features: Array) -> Array:
        return -ops.rbf(features, self.centres[...])


class LeNetLike(SequentialNetwork):
    """LeNet with 3×3 kernels and ReLU.

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

    References:
      C. E. Frigaard, ITMAL lesson 09, *Deep Learning + CNNs + Hardware*.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.conv1 = Conv(input_shape[2], 6, 3, padding="VALID", rngs=rngs)
        self.pool1 = AvgPool()
        self.conv2 = Conv(6, 16, 3, padding="VALID", rngs=rngs)
        self.pool2 = AvgPool()
        self.dense1 = Linear(
            flat_size(in_sequence(self.convolutions()), input_shape), 120, rngs=rngs
        )
        self.dense2 = Linear(120, 84, rngs=rngs)
        self.out = Linear(84, num_classes, rngs=rngs)

    def convolutions(self) -> tuple[Layer, ...]:
        """The layers up to the last pool, whose feature map is ``[N, H, W, 16]``."""
        return (self.conv1, nnx.relu, self.pool1, self.conv2, nnx.relu, self.pool2)

    def sequence(self) -> tuple[Layer, ...]:
        hidden = (self.dense1, nnx.relu, self.dense2, nnx.relu)
        return (*self.convolutions(), flatten, *hidden, self.out)
