"""A trained network with its preprocessing, and how one is put together from arrays."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from etils import epath
from flax import nnx

from experiments.workloads.class_names import read_names
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.training import PRECISIONS

STRIDE = 32  # pixels per grid cell of YOLOv2


@dataclass(frozen=True)
class PretrainedModel:
    """A trained network.

    Attributes:
      name: see `models.spec`; a user's own model is found by it from any folder.
      model: the network with its weights.
      preprocessing: from stored images to the network's input, and the names of the classes.
      precision: in which it was evaluated.
      from_checkpoint: it comes from a checkpoint of a study, not from another framework.
      notes: remarks for the user.
    """

    name: str
    model: nnx.Module
    preprocessing: Preprocessing
    precision: str = "float32"
    from_checkpoint: bool = False
    notes: tuple[str, ...] = ()

    @property
    def detects(self) -> bool:
        """Whether the network is a detector."""
        return models.spec(self.name).detects


def with_options(
    preprocessing: Preprocessing, names_file: str | None, image_size: int | None
) -> Preprocessing:
    """The preprocessing with the size and the classes that the user chose, if any."""
    if image_size:
        resize = max(image_size, round(preprocessing.resize * image_size / preprocessing.size))
        preprocessing = dataclasses.replace(preprocessing, size=image_size, resize=resize)
    if names_file:
        classes = read_names(names_file, len(preprocessing.classes))
        preprocessing = dataclasses.replace(preprocessing, classes=classes)
    return preprocessing


def known_precision(place: epath.Path, saved: Any) -> str:
    """The precision that a file or a folder says it was evaluated in.

    Raises:
      InputError: it is none of the known ones.
    """
    if saved not in PRECISIONS:
        raise InputError(
            f"{place}: its precision is none of {', '.join(PRECISIONS)}; it is damaged, or of a "
            "newer version"
        )
    return saved


def build_model(name: str, preprocessing: Preprocessing, arrays: weights.Weights) -> nnx.Module:
    """The network of this name and these classes, with its weights.

    Raises:
      InputError: a detector cannot take images of this size, or the weights do not fit.
    """
    if models.spec(name).detects and preprocessing.size % STRIDE:
        raise InputError(
            f"--image-size={preprocessing.size}: a detector needs a multiple of {STRIDE}"
        )
    model = models.build(
        name, num_classes=len(preprocessing.classes), input_shape=preprocessing.network_shape
    )
    weights.assign(model, arrays)
    return model
