"""The task that every library performs: a network, its weights, a batch and an optimizer.

Imports no deep-learning library.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from experiments.peers.layers import Dropout, Layer


@dataclass(frozen=True)
class Task:
    """A network, a batch and an optimizer, which every library trains and evaluates.

    Attributes:
      model: the network's name in `jaxcnn.models` or in `user_networks`.
      layers: the same network, layer by layer.
      weights: its parameters and running statistics, by the names of its layers.
      images: one batch, ``f32[N, H, W, C]``; of volumes ``f32[N, D, H, W, C]``.
      labels: its classes, ``i32[N]``.
      num_classes: the number of classes.
      optimizer: ``sgd``, ``momentum`` or ``adam``.
      learning_rate: constant.
      weight_decay: the loss includes half the squared norm of the kernels, times this factor.
      weight_decay_layers: the layers to whose kernels that applies; all if empty.
      threads: that a library may use.
      platform: ``cpu`` or ``gpu``.
      precision: ``float32`` or ``bfloat16``; in the latter, weights, the loss and the update are
        in float32.
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
    platform: str = "cpu"
    precision: str = "float32"

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

    @property
    def has_dropout(self) -> bool:
        """Whether a layer draws random numbers."""
        return self.layers != self.without_dropout().layers

    def without_dropout(self) -> "Task":
        """The same without dropout, so that training losses can be compared.

        No two libraries draw the same random numbers.
        """
        layers = tuple(layer for layer in self.layers if not isinstance(layer, Dropout))
        return dataclasses.replace(self, layers=layers)
