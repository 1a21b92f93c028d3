"""The content of ``.safetensors`` files, under our names or PyTorch's.

| layout    | names                          | kernels                                |
|-----------|--------------------------------|----------------------------------------|
| `JAXCNN`  | ours, see `assign.array_shapes`| ``[height, width, in / groups, out]``  |
| `PYTORCH` | torchvision's                  | ``[out, in / groups, height, width]``  |

Files under timm's names are read too. The names in a file tell which layout it has.

Source: huggingface/safetensors, *Format*.
"""

from collections.abc import Mapping

import numpy as np
from etils import epath
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from jaxcnn.errors import InputError, require_known
from jaxcnn.weights.assign import HEADS, Weights, array_shapes
from jaxcnn.weights.pytorch import adapt_epsilon, to_flax, to_torch
from jaxcnn.weights.torch_identify import identify_network
from jaxcnn.weights.torch_names import NAMINGS, naming_schemes

JAXCNN, PYTORCH = "jaxcnn", "pytorch"
# What other programs expect to find under "format" among the metadata of a file.
FORMATS = {JAXCNN: "flax", PYTORCH: "pt"}
MODEL_KEY = "jaxcnn.model"  # the network's name among the metadata

_IGNORED = "num_batches_tracked"


def read_safetensors(path: epath.PathLike, model_name: str, model: nnx.Module) -> Weights:
    """Reads a local ``.safetensors`` file; half-precision arrays become f32.

    Args:
      path: of the file.
      model_name: a key of `jaxcnn.models.MODELS`.
      model: the network of that name; its arrays may be abstract.

    Returns:
      Arrays by dotted name; those of the last layer may be missing.

    Raises:
      InputError: the file is not a ``.safetensors`` file, is of another network, or is under
        PyTorch's names, which this network does not have.
    """
    shapes = array_shapes(model)
    try:
        with safe_open(path, "numpy") as file:
            file_names = set(file.keys())
            scheme, names = _naming(model_name, set(shapes), file_names)
            content = (file.metadata() or {}).get(MODEL_KEY) or identify_network(file_names)
            _require_names(path, model_name, names, file_names, content)
            arrays = {
                name: file.get_tensor(file_name)
                for name, file_name in names.items()
                if file_name in file_names
            }
    except SafetensorError as error:
        raise _not_safetensors(path, error) from error
    if scheme == JAXCNN:
        return {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    weights = {
        name: to_flax(f"{names[name]} in {path}", name, array, shapes[name])
        for name, array in arrays.items()
    }
    return adapt_epsilon(model_name, weights) if scheme == "timm" else weights


def read_metadata(path: epath.PathLike) -> dict[str, str]:
    """The metadata of a ``.safetensors`` file, empty if it has none.

    Raises:
      InputError: the file is not a ``.safetensors`` file.
    """
    try:
        with safe_open(path, "numpy") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise _not_safetensors(path, error) from error


def to_safetensors(
    weights: Weights,
    model_name: str,
    *,
    layout: str = JAXCNN,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The content of a ``.safetensors`` file with the weights of a network.

    Args:
      weights: all arrays of the network, by dotted name.
      model_name: the network; in the layout `PYTORCH` a key of `torch_names.NAMINGS`.
      layout: `JAXCNN` or `PYTORCH`.
      metadata: further text to keep in the file.

    Raises:
      InputError: an unknown layout, or a network without PyTorch's names.

    >>> from safetensors.numpy import load
    >>> content = to_safetensors({"out.bias": np.ones(3, np.float32)}, "logistic")
    >>> load(content)["out.bias"].tolist()
    [1.0, 1.0, 1.0]
    """
    require_known("layout", layout, FORMATS)
    if layout == PYTORCH:
        names = _torchvision_names(model_name, set(weights))
        weights = {names[name]: to_torch(name, array) for name, array in weights.items()}
    arrays = {name: np.asarray(array, order="C") for name, array in weights.items()}
    return save(arrays, {"format": FORMATS[layout], MODEL_KEY: model_name, **(metadata or {})})


def _torchvision_names(model_name: str, names: set[str]) -> dict[str, str]:
    if model_name not in NAMINGS:
        raise InputError(
            f"model {model_name!r} has no names in PyTorch; only these have: "
            f"{', '.join(NAMINGS)}. Choose the layout {JAXCNN}, which every model has"
        )
    return naming_schemes(model_name, names)["torchvision"]


def _naming(model_name: str, names: set[str], file_names: set[str]) -> tuple[str, dict[str, str]]:
    """The naming with the most names of the file, and the names in it by ours.

    Raises:
      InputError: the file has none of our names, and the network none of PyTorch's.
    """
    namings = {JAXCNN: {name: name for name in names}}
    if model_name in NAMINGS or not names & file_names:
        namings = naming_schemes(model_name, names) | namings
    scheme = max(namings, key=lambda scheme: len(file_names & set(namings[scheme].values())))
    return scheme, namings[scheme]


def _require_names(
    path: epath.PathLike,
    model_name: str,
    file_name_of: dict[str, str],
    file_names: set[str],
    content: str,
) -> None:
    """Raises unless the file has every name of the network, except its last layer, and no other.

    Args:
      path, model_name: for the message.
      file_name_of: the expected names.
      file_names: those of the file.
      content: the network that the file contains, in words.
    """
    missing = [
        file_name
        for name, file_name in file_name_of.items()
        if name.split(".")[0] not in HEADS and file_name not in file_names
    ]
    unknown = sorted(
        name for name in file_names - set(file_name_of.values()) if not name.endswith(_IGNORED)
    )
    problems = []
    if missing:
        problems.append(f"lacks {len(missing)} tensors of {model_name}, such as {missing[0]!r}")
    if unknown:
        problems.append(f"has {len(unknown)} that {model_name} lacks, such as {unknown[0]!r}")
    if problems:
        raise InputError(f"{path} {' and '.join(problems)}: it seems to be {content}")


def _not_safetensors(path: epath.PathLike, error: Exception) -> InputError:
    return InputError(f"{path} is not a .safetensors file, or is cut off ({error})")
