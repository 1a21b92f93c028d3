"""A network as a list of layers that every library can build, and what is done with it. Imports no library of networks.

Channels, units and kernels are those of the weights, which go by the names that they have in our network.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Conv:
    """Convolution, with a bias where the weights have one.

    Attributes:
      name: of its weights.
      padding: pixels on every side; half the kernel if not given.
      strides: of both axes.
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
    """Batch norm; `momentum` is the share that running statistics keep."""

    name: str
    epsilon: float
    momentum: float


@dataclass(frozen=True)
class Activation:
    """A function of each element; the leaky ReLU has a slope of 0.1."""

    kind: Literal["relu", "leaky_relu", "tanh"]


@dataclass(frozen=True)
class Pool:
    """Pooling; `same` as TensorFlow has it, ``ceil(side / strides)`` windows."""

    kind: Literal["max", "average"]
    window: int = 2
    strides: int = 2
    same: bool = False


@dataclass(frozen=True)
class ResponseNorm:
    """Local response normalisation over ``2 * radius + 1`` channels, `alpha` not divided by their number."""

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
    """What `body` makes of the input, plus the input, or what `shortcut` makes of it."""

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
    """What every library does.

    Attributes:
      model: the network's name in `jaxcnn.models`.
      layers: the same network.
      weights: its parameters and running statistics, by their names there.
      images: one batch, ``f32[N, H, W, C]``.
      labels: its classes, ``i32[N]``.
      classes: how many there are.
      optimizer: ``sgd``, ``momentum`` or ``adam``.
      rate: the learning rate.
      decay: factor of half the squared norm of kernels, a term of the loss.
      decayed: the layers whose kernels; all if empty.
      threads: that a library may use.
    """

    model: str
    layers: tuple[Layer, ...]
    weights: dict[str, np.ndarray]
    images: np.ndarray
    labels: np.ndarray
    classes: int
    optimizer: str
    rate: float
    weight_decay: float
    weight_decay_layers: tuple[str, ...]
    threads: int

    @property
    def binary(self) -> bool:
        """Whether the one output is the logit of the second of two classes."""
        return self.weights["out.kernel"].shape[-1] == 1

    def leaves(self, name: str) -> dict[str, np.ndarray]:
        """A layer's own weights: ``kernel``, ``bias``, ``scale``, ``mean``, ``var``, those that it has."""
        split = [(*path.rpartition("."), array) for path, array in self.weights.items()]
        return {leaf: array for layer, _, leaf, array in split if layer == name}

    def decays(self, name: str) -> bool:
        """Whether the kernel of a layer decays."""
        return self.weight_decay > 0 and (
            not self.weight_decay_layers or name.split(".")[0] in self.weight_decay_layers
        )

    def without_dropout(self) -> "Task":
        """The same, and no two libraries draw alike, so that losses in training can be compared."""
        return dataclasses.replace(
            self, layers=tuple(layer for layer in self.layers if not isinstance(layer, Dropout))
        )
