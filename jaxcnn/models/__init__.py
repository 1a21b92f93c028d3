"""The networks, as Flax NNX modules, and the table of them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import jax
from flax import nnx

from jaxcnn.errors import InputError, require_known
from jaxcnn.models.layers import ImagesTooSmallError
from jaxcnn.models.lenet import LeNet5, LeNetLike
from jaxcnn.models.linear import MLP, LogisticRegression
from jaxcnn.models.mnist_cnn import MnistCNN

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ModelSpec:
    """One row of `MODELS`.

    Attributes:
      make: ``make(input_shape, num_classes, rngs=…)`` builds the module.
      input_shape: the published height, width and channels.
      num_classes: the published number of classes.
      parameters: trainable parameters at the published shape.
      source: where the network is described.
      width: the published width, where the network comes in any width.
    """

    make: Callable[..., nnx.Module]
    input_shape: Shape
    num_classes: int
    parameters: int
    source: str
    width: int | None = None

    def __post_init__(self):
        if min(*self.input_shape, self.num_classes, self.parameters) < 1:
            raise ValueError(f"sizes must be positive: {self}")


MODELS: dict[str, ModelSpec] = {
    "logistic": ModelSpec(LogisticRegression, (28, 28, 1), 10, 7_850, "A9: logistic regression"),
    "mlp": ModelSpec(MLP, (28, 28, 1), 10, 669_706, "C9: dropout MLP of any width (mlp:4096), here 512", width=512),
    "lenet5": ModelSpec(LeNet5, (32, 32, 1), 10, 61_706, "C1: LeCun et al. 1998, §II.B, all C3 connections, dense output"),
    "lenet_like": ModelSpec(LeNetLike, (32, 32, 1), 10, 81_194, "C2: LeNet with 3×3 kernels and ReLU"),
    "mnist_cnn": ModelSpec(MnistCNN, (28, 28, 1), 10, 225_034, "D1: small sequential CNN"),
}


def spec(name: str) -> ModelSpec:
    """The row of `MODELS` that `name` (``lenet5``, ``mlp:4096``) means.

    Raises:
      InputError: no such model, or a width for a model that has none.
    """
    return _resolve(name)[0]


def build(name: str, *, num_classes: int | None = None, input_shape: Shape | None = None, seed: int = 0) -> nnx.Module:
    """Builds a network with freshly drawn weights.

    Args:
      name: a key of `MODELS`; a width may follow one that has a width, as in ``mlp:4096``.
      num_classes: size of the output; the published one if not given.
      input_shape: height, width, channels of the images; the published ones if not given.
      seed: of the weights and of dropout.

    Returns:
      A module from images ``f32[N, H, W, C]`` to logits ``f32[N, num_classes]``.

    Raises:
      InputError: the name is unknown, or the images are too small for the network.

    >>> count_parameters(build("lenet5"))
    61706
    """
    row, extra = _resolve(name)
    shape = input_shape or row.input_shape
    try:
        return row.make(shape, num_classes or row.num_classes, rngs=nnx.Rngs(seed), **extra)
    except ImagesTooSmallError as error:
        raise InputError(
            f"model {name!r} cannot take images of {shape[0]}×{shape[1]}: nothing of them is left after its convolutions and pools; its published size is {row.input_shape[0]}×{row.input_shape[1]}"
        ) from error


def count_parameters(model: nnx.Module) -> int:
    """Trainable parameters of a module."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def _resolve(name: str) -> tuple[ModelSpec, dict[str, int]]:
    base, _, width = name.partition(":")
    require_known("model", base, MODELS)
    row = MODELS[base]
    if ":" not in name:
        return row, {} if row.width is None else {"width": row.width}
    if row.width is None or not re.fullmatch(r"[1-9]\d{0,5}", width):
        raise InputError(
            f"model {name!r}: a width from 1 to 999999 may follow only {[n for n, r in MODELS.items() if r.width]}, as in mlp:4096"
        )
    return row, {"width": int(width)}
