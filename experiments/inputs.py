"""What images a network was trained on: kept beside its weights, for whoever uses them later."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jax import Array

from jaxcnn.data.augment import prepare


@dataclass(frozen=True)
class Inputs:
    """The way from a stored picture to what the network sees.

    Attributes:
      size: side of the images that the network gets.
      resize: side of the stored ones, out of which those are cut.
      channels: 1 or 3.
      classes: names, by label.
      normalise: ``standard``, ``unit`` or ``image``.
      mean, std: of each channel, for ``standard``.
    """

    size: int
    resize: int
    channels: int
    classes: tuple[str, ...]
    normalise: str = "unit"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        return self.resize, self.resize, self.channels

    @property
    def network_shape(self) -> tuple[int, int, int]:
        return self.size, self.size, self.channels

    def prepare(self, augmentations: tuple[str, ...] = ()) -> Callable[[Array, Array | None], Array]:
        """See `jaxcnn.data.augment.prepare`."""
        return prepare(
            augmentations, self.mean, self.std, size=(self.size, self.size), per_image=self.normalise == "image"
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Inputs":
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()})
