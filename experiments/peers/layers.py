"""A network as a list of layers that every library can build, and the task that each one performs.

Imports no deep-learning library. The numbers of channels and units and the sizes of kernels are
those of the weights, which have the names that they have in the network of `jaxcnn`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Conv:
    """Convolution, with a bias if its weights have one.

    Attributes:
      name: of its weights.
      padding: pixels on every side; half the kernel if not given.
      strides: along both axes.
    """

    name: str
    padding: int | None = None
    strides: int = 1


@dataclass(frozen=True)
class Dense:
    """Dense layer with a bias."""

    name: str


@dataclass(frozen=True)
class Norm:
    """Batch norm; `momentum` is the share of the running statistics that an update keeps."""

    name: str
    epsilon: float
    momentum: float


@dataclass(frozen=True)
class Activation:
    """An elementwise function; the leaky ReLU has a slope of 0.1."""

    kind: Literal["relu", "leaky_relu", "tanh"]


@dataclass(frozen=True)
class Pool:
    """Pooling; `same` as in TensorFlow: ``ceil(side / strides)`` windows."""

    kind: Literal["max", "average"]
    window: int = 2
    strides: int = 2
    same: bool = False


@dataclass(frozen=True)
class ResponseNorm:
    """Local response normalization over ``2 * radius + 1`` channels.

    `alpha` is not divided by their number.
    """

    radius: int
    bias: float
    alpha: float
    beta: float


@dataclass(frozen=True)
class Dropout:
    """Dropout."""

    rate: float


@dataclass(frozen=True)
class Flatten:
    """``[N, H, W, C]`` to ``[N, H * W * C]``."""


@dataclass(frozen=True)
class GlobalAverage:
    """``[N, H, W, C]`` to ``[N, C]``."""


@dataclass(frozen=True)
class Residual:
    """``body(x) + shortcut(x)``; an empty shortcut is the identity."""

    body: tuple["Layer", ...]
    shortcut: tuple["Layer", ...] = ()


Layer = (
    Conv
    | Dense
    | Norm
    | Activation
    | Pool
    | ResponseNorm
    | Dropout
    | Flatten
    | GlobalAverage
    | Residual
)


@dataclass(frozen=True)
class Task:
    """A network, a batch and an optimizer, which every library trains and evaluates.

    Attributes:
      model: the network's name in `jaxcnn.models`.
      layers: the same network, layer by layer.
      weights: its parameters and running statistics, by their names in that network.
      images: one batch, ``f32[N, H, W, C]``.
      labels: its classes, ``i32[N]``.
      num_classes: the number of classes.
      optimizer: ``sgd``, ``momentum`` or ``adam``.
      learning_rate: constant.
      weight_decay: the loss includes half the squared norm of the kernels, times this factor.
      weight_decay_layers: the layers to whose kernels that applies; all if empty.
      threads: that a library may use.
    """

    model: str
    layers: tuple[Layer, ...]
    weights: dict[str, np.ndarray]
    images: np.ndarray
    labels: np.ndarray
    num_classes: int
    optimizer: str
    learning_rate: float
    weight_decay: float
    weight_decay_layers: tuple[str, ...]
    threads: int

    @property
    def binary(self) -> bool:
        """Whether the single output is the logit of the second of two classes."""
        return self.weights["out.kernel"].shape[-1] == 1

    def layer_weights(self, name: str) -> dict[str, np.ndarray]:
        """The weights of a layer, of ``kernel``, ``bias``, ``scale``, ``mean`` and ``var``."""
        split = [(*path.rpartition("."), array) for path, array in self.weights.items()]
        return {weight: array for layer, _, weight, array in split if layer == name}

    def has_weight_decay(self, name: str) -> bool:
        """Whether weight decay applies to the kernel of a layer."""
        layers = self.weight_decay_layers
        return self.weight_decay > 0 and (not layers or name.split(".")[0] in layers)

    def without_dropout(self) -> "Task":
        """The same without dropout, so that training losses can be compared.

        No two libraries draw the same random numbers.
        """
        layers = tuple(layer for layer in self.layers if not isinstance(layer, Dropout))
        return dataclasses.replace(self, layers=layers)
