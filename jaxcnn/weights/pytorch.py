"""PyTorch's weights, under torchvision's names, from a ``.safetensors`` file.

| network                  | torchvision's names                                                                   |
|--------------------------|---------------------------------------------------------------------------------------|
| resnet18, 34, … 152      | ``conv1``, ``bn1``, ``layer1.0.conv1``, ``layer1.0.bn1``, ``layer1.0.downsample.0``, ``fc`` |
| vgg11, vgg16, vgg19      | ``features.N``, pools and ReLUs counted, ``classifier.0``, ``classifier.3``, ``classifier.6`` |
| alexnet, as of 2012      | ``features.N``, pools, ReLUs and LRN counted, ``classifier.1``, ``.4``, ``.6``; torchvision has another |

Source: torchvision, `models/resnet.py`, `models/vgg.py`, `models/alexnet.py`; huggingface/safetensors, *Format*.
"""

import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import nnx
from safetensors import SafetensorError, safe_open

from jaxcnn.errors import InputError, require_known
from jaxcnn.weights.assign import HEADS, Shape, Weights, names

# Blocks in each stage, and whether a block has three convolutions (He et al. 2016, table 1).
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}
VGGS = {"vgg11": 8, "vgg16": 13, "vgg19": 16}  # convolutions
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

# The dense layer after the last pool, and that pool's channels: PyTorch flattens [C, H, W], Flax [H, W, C].
FLATTENED = {"dense1": 512, "dense6": 256}

_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
_IGNORED = "num_batches_tracked"


def read_pytorch(path: epath.PathLike, model_name: str, model: nnx.Module) -> Weights:
    """Reads a local ``.safetensors`` file; half-precision numbers become f32.

    Args:
      path: of the file.
      model_name: one of `KNOWN`.
      model: the network of that name; may be abstract.

    Returns:
      Arrays by their names in the network; those of its last layer may be missing.

    Raises:
      InputError: the file is no such file, or of another network; or there is no table for the network.
    """
    shapes = names(model)
    wanted = torch_names(model_name, shapes)
    try:
        with safe_open(path, "numpy") as file:
            _require_names(path, model_name, wanted, set(file.keys()))
            present = set(file.keys())
            found = {
                name: file.get_tensor(torch) for name, torch in wanted.items() if torch in present
            }
    except SafetensorError as error:
        raise InputError(f"{path} is no .safetensors file, or is cut off ({error})") from error
    return {
        name: _converted(f"{wanted[name]} in {path}", name, array, shapes[name])
        for name, array in found.items()
    }


def torch_names(model_name: str, shapes: dict[str, Shape]) -> dict[str, str]:
    """From each of a network's names to torchvision's: ``conv1.norm.mean`` to ``bn1.running_mean``.

    Args:
      model_name: one of `KNOWN`.
      shapes: of that network, from `names`.

    Raises:
      InputError: there is no table for the network.
    """
    require_known("network for PyTorch's weights", model_name, KNOWN)
    layers = {name.rpartition(".")[0] for name in shapes}
    if model_name in RESNETS:
        modules = {layer: _resnet_module(layer, RESNETS[model_name][0]) for layer in layers}
    else:
        modules = ALEXNET if model_name == "alexnet" else _vgg_modules(layers)
    return {
        name: f"{modules[layer]}.{_LEAVES[leaf]}"
        for name in shapes
        for layer, _, leaf in [name.rpartition(".")]
    }


def _resnet_module(layer: str, stages: tuple[int, ...]) -> str:
    """``blocks.layers.2.conv1.norm`` → ``layer2.0.bn1``, ``….shortcut.norm`` → ``….downsample.1``."""
    if layer == "out":
        return "fc"
    *block, unit, part = layer.split(".")
    place = _stage(int(block[-1]), stages) if block else ""
    if unit == "shortcut":
        return f"{place}downsample.{0 if part == 'conv' else 1}"
    return place + (unit if part == "conv" else unit.replace("conv", "bn"))


def _stage(block: int, stages: tuple[int, ...]) -> str:
    for number, count in enumerate(stages, 1):
        if block < count:
            return f"layer{number}.{block}."
        block -= count
    raise ValueError(f"there are {sum(stages)} blocks, this is number {sum(stages) + block + 1}")


def _vgg_modules(layers: set[str]) -> dict[str, str]:
    """A convolution and its ReLU take two places in `features`, a pool, which has no name here, one."""
    convs = {int(layer.split(".")[2]) for layer in layers if layer.startswith("convolve.")}
    places = {number: number + sum(conv < number for conv in convs) for number in convs}
    features = {
        f"convolve.layers.{number}.conv": f"features.{place}" for number, place in places.items()
    }
    return features | {"dense1": "classifier.0", "dense2": "classifier.3", "out": "classifier.6"}


def _require_names(
    path: epath.PathLike, model_name: str, wanted: dict[str, str], present: set[str]
) -> None:
    """Raises unless the file has all that the network needs, its last layer aside, and nothing else."""
    required = [torch for name, torch in wanted.items() if name.split(".")[0] not in HEADS]
    missing = [torch for torch in required if torch not in present]
    surplus = sorted(name for name in present - set(wanted.values()) if not name.endswith(_IGNORED))
    if missing or surplus:
        lacks = (
            f"lacks {len(missing)} tensors of {model_name}, such as {missing[0]!r}"
            if missing
            else ""
        )
        more = (
            f"has {len(surplus)} that {model_name} has not, such as {surplus[0]!r}"
            if surplus
            else ""
        )
        raise InputError(
            f"{path} {' and '.join(filter(None, (lacks, more)))}: it seems to be {seems(present)}"
        )


def seems(present: set[str]) -> str:
    """The network that has these names.

    >>> seems({f"layer{stage}.{block}.conv1.weight" for stage in (1, 2, 3, 4) for block in (0, 1)})
    'resnet18'
    >>> seems({"encoder.weight"})
    'none of resnet18, resnet34, resnet50, resnet101, resnet152, vgg11, vgg16, vgg19, alexnet'
    """
    blocks = {tuple(name.split(".")[:2]) for name in present if name.startswith("layer")}
    stages = tuple(sum(stage == f"layer{number}" for stage, _ in blocks) for number in (1, 2, 3, 4))
    for name, row in RESNETS.items():
        if row == (stages, "layer1.0.conv3.weight" in present):
            return name
    features = {name for name in present if name.startswith("features.")}
    convs = sum(name.endswith(".weight") for name in features)
    if any(name.endswith(".running_mean") for name in features):
        return "a network with batch norm among its features, such as vgg16_bn"
    if convs == len(ALEXNET) - 3:
        return (
            "alexnet"
            if "features.4.weight" in features
            else "torchvision's alexnet, a later one without groups"
        )
    known = [name for name, count in VGGS.items() if count == convs]
    return known[0] if known else f"none of {', '.join(KNOWN)}"


def _converted(place: str, name: str, array: np.ndarray, shape: Shape) -> np.ndarray:
    """OIHW to HWIO, [out, in] to [in, out], vectors as they are; f32."""
    layer = name.rpartition(".")[0]
    channels = FLATTENED.get(layer, 1) if len(shape) == 2 else 1
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{place} holds {array.dtype}; weights are floating-point numbers")
    if array.ndim != len(shape) or (array.ndim == 2 and array.shape[1] % channels):
        raise InputError(
            f"{place} is {'×'.join(map(str, array.shape))}; {name} is {'×'.join(map(str, shape))}"
        )
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    if array.ndim == 2:
        array = array.reshape(len(array), channels, -1).transpose(2, 1, 0).reshape(-1, len(array))
    return np.ascontiguousarray(array, np.float32)
