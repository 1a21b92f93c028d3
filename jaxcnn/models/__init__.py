"""Networks as Flax NNX modules, and the table of them."""

import functools
import math
import re
from typing import Any

import jax
from flax import nnx

from jaxcnn.errors import InputError, require_known
from jaxcnn.models import recipes
from jaxcnn.models.darknet import YOLOv2
from jaxcnn.models.model_spec import ModelSpec, Shape
from jaxcnn.models.random_streams import random_streams
from jaxcnn.models.recipe import Recipe
from jaxcnn.models.shapes import ImagesTooSmallError
from jaxcnn.models.table import MODELS
from jaxcnn.models.user_model import (
    UserModel,
    check_digest,
    is_user_model,
    label,
    load_user_model,
)
from jaxcnn.models.user_network import make_user_network, require_finite
from jaxcnn.weights.assign import HEADS

__all__ = [
    "MODELS",
    "ModelSpec",
    "Recipe",
    "UserModel",
    "YOLOv2",
    "build",
    "check_digest",
    "count_non_trainable",
    "count_parameters",
    "heads",
    "is_user_model",
    "label",
    "load_user_model",
    "require_finite",
    "spec",
]


def spec(name: str) -> ModelSpec:
    """The row of `MODELS` for a name such as ``lenet5`` or ``mlp:4096``.

    A user's own model, ``./file.py:Factory`` or ``package.module:Factory``, has a row without
    published sizes.

    Raises:
      InputError: an unknown model, a width for a model that has none, or a user's model that cannot
        be imported.

    >>> spec("mlp:4096").input_shape
    (28, 28, 1)
    """
    row, _ = _parse(name)
    return row


def build(
    name: str, *, num_classes: int | None = None, input_shape: Shape | None = None, seed: int = 0
) -> nnx.Module:
    """Builds a network with random weights.

    Args:
      name: see `spec`.
      num_classes: the number of classes; by default the published one.
      input_shape: height, width and channels of the images; by default the published ones.
      seed: of the weights and of dropout.

    Returns:
      A module from images ``f32[N, H, W, C]`` to logits ``f32[N, num_classes]``.

    Raises:
      InputError: an unknown model, images that are too small for the network, or a user's model
        whose sizes are not given, or that is not a network (`user_network.make_user_network`).

    >>> count_parameters(build("lenet5"))
    61706
    """
    row, options = _parse(name)
    shape, classes = input_shape or row.input_shape, num_classes or row.num_classes
    if shape is None or classes is None:
        raise InputError(
            f"model {label(name)} has no published sizes: give the shape of the images and the "
            "number of classes"
        )
    try:
        return row.make(shape, classes, rngs=random_streams(seed), **options)
    except ImagesTooSmallError as error:
        if row.input_shape is None:
            raise InputError(
                f"model {label(name)!r} cannot take images of {shape[0]}×{shape[1]}: its "
                "convolutions and pools leave no pixels of them"
            ) from error
        height, width, _ = row.input_shape
        least = _smallest_side(row, shape[2], classes, max(height, width), options)
        raise InputError(
            f"model {name!r} cannot take images of {shape[0]}×{shape[1]}: its convolutions and "
            f"pools leave no pixels of them; it needs at least {least}×{least}, and its published "
            f"size is {height}×{width}"
        ) from error


def _smallest_side(
    row: ModelSpec, channels: int, num_classes: int, fits: int, options: dict[str, Any]
) -> int:
    """The side of the smallest square images that a network takes; those of side `fits` do."""
    too_small = 0
    while fits - too_small > 1:
        side = (fits + too_small) // 2
        try:
            make = functools.partial(row.make, (side, side, channels), num_classes, **options)
            nnx.eval_shape(lambda make=make: make(rngs=random_streams(0)))
            fits = side
        except ImagesTooSmallError:
            too_small = side
    return fits


def count_parameters(model: nnx.Module) -> int:
    """The number of trainable parameters of a module; its arrays may be abstract."""
    return _count(nnx.state(model, nnx.Param))


def count_non_trainable(model: nnx.Module) -> int:
    """The number of running means and variances and fixed centers; random keys do not count."""
    return _count(nnx.state(model, nnx.Not(nnx.Any(nnx.Param, nnx.RngState))))


def heads(model: nnx.Module) -> tuple[str, ...]:
    """Names of the layers that depend on the number of classes.

    These are ``out`` and, in GoogLeNet, the auxiliary heads. A user's model may have none of them.

    >>> heads(build("lenet5"))
    ('out',)
    """
    return tuple(name for name in HEADS if isinstance(getattr(model, name, None), nnx.Module))


def _count(state: nnx.State) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state))


def _parse(name: str) -> tuple[ModelSpec, dict[str, Any]]:
    """The row of a model and the options of its `make`, ``width`` where it has one."""
    if is_user_model(name):
        return _user_row(load_user_model(name)), {}
    base, colon, width = name.partition(":")
    require_known("model", base, MODELS)
    row = MODELS[base]
    if not colon:
        return row, {} if row.width is None else {"width": row.width}
    if row.width is None or not re.fullmatch(r"[1-9]\d{0,5}", width):
        with_width = [name for name, row in MODELS.items() if row.width is not None]
        raise InputError(
            f"model {name!r}: a width from 1 to 999999 may follow only {with_width}, as in mlp:4096"
        )
    return row, {"width": int(width)}


def _user_row(user: UserModel) -> ModelSpec:
    """The row of a user's own model, of which only the recipe is known."""
    return ModelSpec(
        make=functools.partial(make_user_network, user),
        input_shape=None,
        num_classes=None,
        parameters=None,
        flops=None,
        source=f"{user.file}, SHA-256 {user.digest}…",
        recipe=recipes.OURS,
    )
