"""Networks without convolutions, the baselines."""

import math

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Dropout
from jaxcnn.models.sequential import Layer, SequentialNetwork
from jaxcnn.models.shapes import flatten


class LogisticRegression(SequentialNetwork):
    """Logistic regression: one dense layer, with the softmax in the loss.

    | layer   | output |
    |---------|--------|
    | flatten | 784    |
    | dense   | 10     |
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.out = Linear(math.prod(input_shape), num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (flatten, self.out)


class MLP(SequentialNetwork):
    """A multilayer perceptron: three dense layers, dropout 0.2 after the two hidden layers.

    | layer               | output |
    |---------------------|--------|
    | flatten             | 784    |
    | dense ReLU, dropout | n      |
    | dense ReLU, dropout | n      |
    | dense               | 10     |

    References:
      C. E. Frigaard, ITMAL lesson 09, *Deep Learning + CNNs + Hardware*.
    """

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, *, width: int, rngs: nnx.Rngs
    ):
        self.hidden1 = Linear(math.prod(input_shape), width, rngs=rngs)
        self.hidden2 = Linear(width, width, rngs=rngs)
        self.out = Linear(width, num_classes, rngs=rngs)
        self.dropout1 = Dropout(0.2, rngs=rngs)
        self.dropout2 = Dropout(0.2, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        first = (self.hidden1, nnx.relu, self.dropout1)
        return (flatten, *first, self.hidden2, nnx.relu, self.dropout2, self.out)
