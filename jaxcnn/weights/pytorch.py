"""Reads PyTorch weights, under torchvision's names, from ``.safetensors`` files.

| network       | torchvision's names                                                   |
|---------------|-----------------------------------------------------------------------|
| resnet18, …   | ``conv1``, ``bn1``, ``fc``; in the blocks ``layer1.0.conv1``,         |
|               | ``layer1.0.bn1``, ``layer1.0.downsample.0``                           |
| vgg11, …      | ``features.N``, where pools and ReLUs count; ``classifier.0``,        |
|               | ``.3``, ``.6``                                                        |
| alexnet       | ``features.N``, where pools, ReLUs and LRN count; ``classifier.1``,   |
|               | ``.4``, ``.6``                                                        |

The AlexNet is that of 2012, with two groups and LRN; torchvision's is a later one without them.

Source: torchvision, `models/resnet.py`, `models/vgg.py`, `models/alexnet.py`;
huggingface/safetensors, *Format*.
"""

import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx
from safetensors import SafetensorError, safe_open

from jaxcnn.errors import InputError, require_known
from jaxcnn.weights.assign import HEADS, Shape, Weights, array_shapes

# The number of blocks in each stage, and whether a block has three convolutions
# (He et al. 2016, table 1).
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}
# The number of convolutions.
VGGS = {"vgg11": 8, "vgg16": 13, "vgg19": 16}
ALEXNET = {
    "conv1": "features.0",
    "conv2": "features.4",
    "conv3": "features.8",
    "conv4": "features.10",
    "conv5": "features.12",
    "dense6": "classifier.1",
    "dense7": "classifier.4",
    "out": "classifier.6",
}
KNOWN = (*RESNETS, *VGGS, "alexnet")

# The channels before the first dense layer, whose inputs PyTorch flattens from [C, H, W] and Flax
# from [H, W, C].
FLATTENED_CHANNELS = {"dense1": 512, "dense6": 256}

TORCH_NAMES = {  # of a layer's weights, by ours
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
_IGNORED = "num_batches_tracked"


def read_pytorch(path: epath.PathLike, model_name: str, model: nnx.Module) -> Weights:
    """Reads a local ``.safetensors`` file; half-precision arrays become f32.

    Args:
      path: of the file.
      model_name: one of `KNOWN`.
      model: the network of that name; its arrays may be abstract.

    Returns:
      Arrays by dotted name; those of the last layer may be missing.

    Raises:
      InputError: the file is not a ``.safetensors`` file or is of another network, or the network
        is not in `KNOWN`.
    """
    shapes = array_shapes(model)
    torch_name_of = torch_names(model_name, shapes)
    try:
        with safe_open(path, "numpy") as file:
            file_names = set(file.keys())
            _require_names(path, model_name, torch_name_of, file_names)
            arrays = {
                name: file.get_tensor(torch_name)
                for name, torch_name in torch_name_of.items()
                if torch_name in file_names
            }
    except SafetensorError as error:
        raise InputError(f"{path} is not a .safetensors file, or is cut off ({error})") from error
    return {
        name: _to_flax(f"{torch_name_of[name]} in {path}", name, array, shapes[name])
        for name, array in arrays.items()
    }


def torch_names(model_name: str, shapes: dict[str, Shape]) -> dict[str, str]:
    """Maps each name of a network to torchvision's: ``conv1.norm.mean`` to ``bn1.running_mean``.

    Args:
      model_name: one of `KNOWN`.
      shapes: of that network, from `array_shapes`.

    Raises:
      InputError: the network is not in `KNOWN`.
    """
    require_known("network for PyTorch's weights", model_name, KNOWN)
    layers = {name.rpartition(".")[0] for name in shapes}
    if model_name in RESNETS:
        modules = {layer: _resnet_module(layer, RESNETS[model_name][0]) for layer in layers}
    else:
        modules = ALEXNET if model_name == "alexnet" else _vgg_modules(layers)
    return {
        name: f"{modules[layer]}.{TORCH_NAMES[leaf]}"
        for name in shapes
        for layer, _, leaf in [name.rpartition(".")]
    }


def _resnet_module(layer: str, stages: tuple[int, ...]) -> str:
    """Torchvision's name: in ResNet-18 ``layer2.0.bn1`` for ``blocks.layers.2.conv1.norm``."""
    if layer == "out":
        return "fc"
    *block, unit, part = layer.split(".")
    prefix = _resnet_block(int(block[-1]), stages) if block else ""
    if unit == "shortcut":
        return f"{prefix}downsample.{0 if part == 'conv' else 1}"
    return prefix + (unit if part == "conv" else unit.replace("conv", "bn"))


def _resnet_block(index: int, stages: tuple[int, ...]) -> str:
    """The prefix of the block with this index, such as ``layer2.0.``."""
    block = index
    for stage, count in enumerate(stages, 1):
        if block < count:
            return f"layer{stage}.{block}."
        block -= count
    raise ValueError(f"block {index} does not exist: there are {sum(stages)} blocks")


def _vgg_modules(layers: set[str]) -> dict[str, str]:
    """Torchvision's names by layer; it counts a convolution and its ReLU as two features."""
    convs = {int(layer.split(".")[2]) for layer in layers if layer.startswith("convolve.")}
    features = {
        f"convolve.layers.{index}.conv": f"features.{index + sum(conv < index for conv in convs)}"
        for index in convs
    }
    return features | {"dense1": "classifier.0", "dense2": "classifier.3", "out": "classifier.6"}


def _require_names(
    path: epath.PathLike, model_name: str, torch_name_of: dict[str, str], file_names: set[str]
) -> None:
    """Raises unless the file has every name of the network, except its last layer, and no other."""
    missing = [
        torch_name
        for name, torch_name in torch_name_of.items()
        if name.split(".")[0] not in HEADS and torch_name not in file_names
    ]
    unknown = sorted(
        name for name in file_names - set(torch_name_of.values()) if not name.endswith(_IGNORED)
    )
    problems = []
    if missing:
        problems.append(f"lacks {len(missing)} tensors of {model_name}, such as {missing[0]!r}")
    if unknown:
        problems.append(f"has {len(unknown)} that {model_name} lacks, such as {unknown[0]!r}")
    if problems:
        raise InputError(
            f"{path} {' and '.join(problems)}: it seems to be {identify_network(file_names)}"
        )


def identify_network(file_names: set[str]) -> str:
    """The network that a file with these names probably contains, in words.

    >>> identify_network(
    ...     {f"layer{stage}.{block}.conv1.weight" for stage in (1, 2, 3, 4) for block in (0, 1)}
    ... )
    'resnet18'
    >>> identify_network({"encoder.weight"})
    'none of resnet18, resnet34, resnet50, resnet101, resnet152, vgg11, vgg16, vgg19, alexnet'
    """
    blocks = {tuple(name.split(".")[:2]) for name in file_names if name.startswith("layer")}
    stages = tuple(sum(stage == f"layer{number}" for stage, _ in blocks) for number in (1, 2, 3, 4))
    for model_name, row in RESNETS.items():
        if row == (stages, "layer1.0.conv3.weight" in file_names):
            return model_name
    features = {name for name in file_names if name.startswith("features.")}
    convs = sum(name.endswith(".weight") for name in features)
    if any(name.endswith(".running_mean") for name in features):
        return "a network with batch norm among its features, such as vgg16_bn"
    if convs == len(ALEXNET) - 3:
        if "features.4.weight" in features:
            return "alexnet"
        return "torchvision's alexnet, a later one without groups"
    matches = [model_name for model_name, count in VGGS.items() if count == convs]
    return matches[0] if matches else f"none of {', '.join(KNOWN)}"


def _to_flax(location: str, name: str, array: np.ndarray, shape: Shape) -> np.ndarray:
    """Converts OIHW to HWIO and [out, in] to [in, out], and everything to f32.

    Args:
      location: of the array, for error messages.
      name: of the array in the network.
      array: PyTorch's.
      shape: of the network's array.
    """
    layer = name.rpartition(".")[0]
    channels = FLATTENED_CHANNELS.get(layer, 1) if len(shape) == 2 else 1
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{location} is of type {array.dtype}; weights are floating-point numbers")
    if array.ndim != len(shape) or (array.ndim == 2 and array.shape[1] % channels):
        raise InputError(
            f"{location} is {'×'.join(map(str, array.shape))}; "
            f"{name} is {'×'.join(map(str, shape))}"
        )
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    if array.ndim == 2:
        array = array.reshape(len(array), channels, -1).transpose(2, 1, 0).reshape(-1, len(array))
    return np.ascontiguousarray(array, np.float32)
