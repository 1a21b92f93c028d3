"""Weights: read from checkpoints and files, assigned to networks, written as ``.safetensors``."""

import numpy as np
from etils import epath
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Weights, array_shapes, array_values, assign
from jaxcnn.weights.checkpoint import read_checkpoint, read_identity
from jaxcnn.weights.darknet import read_darknet
from jaxcnn.weights.safetensors_file import (
    MODEL_KEY,
    read_metadata,
    read_safetensors,
    to_safetensors,
)

__all__ = [
    "MODEL_KEY",
    "Weights",
    "array_shapes",
    "array_values",
    "assign",
    "read",
    "read_checkpoint",
    "read_darknet",
    "read_identity",
    "read_metadata",
    "read_safetensors",
    "to_safetensors",
]


def read(path: epath.PathLike, model_name: str, model: nnx.Module) -> Weights:
    """Reads the weights of a network, which `assign` puts into it.

    Args:
      path: a ``.weights`` file (Darknet), a ``.safetensors`` file (of PyTorch, or written by
        `to_safetensors`) or the folder of a checkpoint.
      model_name: a key of `jaxcnn.models.MODELS`.
      model: the network of that name, for any number of classes; its arrays may be abstract, as
        from `nnx.eval_shape`.

    Returns:
      Arrays by dotted name. Those of the last layer may be missing or of another shape.

    Raises:
      InputError: the path does not exist, the file is of another kind or damaged, the weights are
        of another network, or not finite.
    """
    location = epath.Path(path).expanduser()
    if not location.exists():
        raise InputError(f"there is no file or folder {path}")
    arrays = _read(location, model_name, model)
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        more = f" and {len(bad) - 3} more arrays" if len(bad) > 3 else ""
        raise InputError(
            f"weights in {path}: NaN or infinite values in {', '.join(bad[:3])}{more}; take the "
            "weights of another run or an earlier checkpoint"
        )
    return arrays


def _read(location: epath.Path, model_name: str, model: nnx.Module) -> Weights:
    if location.is_dir():
        return read_checkpoint(location)
    if location.suffix == ".weights":
        return read_darknet(location, model)
    if location.suffix == ".safetensors":
        return read_safetensors(location, model_name, model)
    raise InputError(
        f"weights in {location}: expected a .weights file (Darknet), a .safetensors file "
        "(PyTorch or jaxcnn) or a checkpoint folder"
    )
