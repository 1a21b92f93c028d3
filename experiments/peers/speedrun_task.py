"""What a library needs to know to perform the recipe of the study `speedrun`, as plain data."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SpeedrunTask:
    """The recipe, as `jaxcnn.models.recipes.SPEEDRUN` and the optimizer ``speedrun`` have it.

    Attributes:
      widths: channels of the network's blocks.
      epochs: passes over the training set.
      batch_size: images of a step.
      learning_rate: of Muon at the first step; all rates fall linearly to zero.
      muon_momentum: of Muon.
      newton_schulz_steps: iterations that orthogonalise an update.
      head_rate, bias_rate: learning rates of the last layer and of the biases, by SGD.
      momentum: of SGD, Nesterov's.
      weight_decay: the share of a weight, of those that SGD updates, that a step takes away.
      label_smoothing: share of a label that is divided among all classes.
      max_shift: pixels by which an image is shifted at most.
      seed: of weights, order and augmentation.
      threads: that the library may use.
      device: of PyTorch, ``cpu`` or ``cuda``.
    """

    widths: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: float
    muon_momentum: float
    newton_schulz_steps: int
    head_rate: float
    bias_rate: float
    momentum: float
    weight_decay: float
    label_smoothing: float
    max_shift: int
    seed: int
    threads: int
    device: str

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "SpeedrunTask":
        return cls(**fields | {"widths": tuple(fields["widths"])})
