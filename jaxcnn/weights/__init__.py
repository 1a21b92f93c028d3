"""Weights from elsewhere: Darknet's and PyTorch's files, and checkpoints."""

from etils import epath
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Weights, assign, names
from jaxcnn.weights.checkpoint import identity_of, weights_of
from jaxcnn.weights.darknet import read_darknet
from jaxcnn.weights.pytorch import read_pytorch

__all__ = [
    "Weights",
    "assign",
    "identity_of",
    "names",
    "read",
    "read_darknet",
    "read_pytorch",
    "weights_of",
]


def read(path: epath.PathLike, model_name: str, model: nnx.Module) -> Weights:
    """Reads weights for a network, to be put into it by `assign`.

    Args:
      path: a ``.weights`` file (Darknet), a ``.safetensors`` file (PyTorch) or a checkpoint's folder.
      model_name: a key of `jaxcnn.models.MODELS`.
      model: the network of that name, for any number of classes; may be abstract, as from `nnx.eval_shape`.

    Raises:
      InputError: there is nothing of that kind, it is damaged, or of another network.
    """
    place = epath.Path(path).expanduser()
    if not place.exists():
        raise InputError(f"there is no file or folder {path}")
    if place.is_dir():
        return weights_of(place)
    if place.suffix == ".weights":
        return read_darknet(place, model)
    if place.suffix == ".safetensors":
        return read_pytorch(place, model_name, model)
    raise InputError(
        f"weights in {path}: expected a .weights file (Darknet), a .safetensors file (PyTorch) or a checkpoint's folder"
    )
