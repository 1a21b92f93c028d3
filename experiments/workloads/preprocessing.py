"""The preprocessing that a network was trained with, kept beside its weights for later use."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from jax import Array

from experiments.config.bounds import MAX_IMAGE_SIZE
from jaxcnn.data.augment import make_preprocess

NORMALISATIONS = ("standard", "unit", "image")


@dataclass(frozen=True)
class Preprocessing:
    """The way from a stored image to the network's input.

    Attributes:
      size: side of the images that the network gets.
      resize: side of the stored images, from which those are cropped.
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
        """``(resize, resize, channels)``."""
        return self.resize, self.resize, self.channels

    @property
    def network_shape(self) -> tuple[int, int, int]:
        """``(size, size, channels)``."""
        return self.size, self.size, self.channels

    def make_preprocess(
        self, augmentations: tuple[str, ...] = ()
    ) -> Callable[[Array, Array | None], Array]:
        """The function for `training.create`; see `jaxcnn.data.augment.make_preprocess`."""
        return make_preprocess(
            augmentations,
            self.mean,
            self.std,
            size=(self.size, self.size),
            per_image=self.normalise == "image",
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: Any) -> "Preprocessing":
        """The preprocessing as `to_json` wrote it.

        Raises:
          ValueError: a field is missing, of a wrong type, or out of bounds.
        """
        result = msgspec.convert(saved, cls)  # its errors are `ValueError`
        sides = result.size, result.resize
        if not all(1 <= side <= MAX_IMAGE_SIZE for side in sides) or result.channels not in (1, 3):
            raise ValueError(f"images of {sides} pixels and {result.channels} channels")
        if result.normalise not in NORMALISATIONS or not result.classes:
            raise ValueError(f"normalise {result.normalise!r:.30}, {len(result.classes)} classes")
        if (
            not all(math.isfinite(value) for value in (*result.mean, *result.std))
            or 0 in result.std
        ):
            raise ValueError("a mean or a standard deviation that is not finite, or 0")
        return result
