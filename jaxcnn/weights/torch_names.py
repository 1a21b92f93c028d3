"""The names that PyTorch's libraries give to the parameters of networks.

`NAMINGS` has a row for each network and, in it, each naming. A naming maps our layers, such as
``conv1.norm``, to PyTorch's modules, such as ``bn1``; `TORCH_NAMES` maps the arrays of a layer.

| network       | torchvision's names                                                   |
|---------------|-----------------------------------------------------------------------|
| resnet18, …   | ``conv1``, ``bn1``, ``fc``; in the blocks ``layer1.0.conv1``,         |
|               | ``layer1.0.bn1``, ``layer1.0.downsample.0``                           |
| vgg11, …      | ``features.N``, where pools and ReLUs count; ``classifier.0``,        |
|               | ``.3``, ``.6``                                                        |
| alexnet       | ``features.N``, where pools, ReLUs and LRN count; ``classifier.1``,   |
|               | ``.4``, ``.6``                                                        |
| densenet121   | ``features.denseblock1.denselayer1.conv1``, …; ``classifier``         |
| squeezenet1_1 | ``features.N``, where pools and ReLUs count; ``classifier.1``         |
| shufflenet_v2 | ``stage2.0.branch1.0``, …; ``conv1.0``, ``conv5.0``, ``fc``           |

The AlexNet is that of 2012, with two groups and LRN; torchvision's is a later one without them.
`torch_names_staged` has the networks for which timm's names differ from torchvision's.

Source: torchvision 0.28, `models/`; timm 1.0, `models/`.
"""

from collections.abc import Callable
from functools import partial

from jaxcnn.errors import require_known
from jaxcnn.weights import torch_names_staged as staged

Modules = dict[str, str]  # PyTorch's modules by our layers
Naming = Callable[[set[str]], Modules]

# The number of blocks in each stage, and whether a block has three convolutions
# (He et al. 2016, table 1; Xie et al. 2017, table 1).
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
    "resnext50_32x4d": ((3, 4, 6, 3), True),
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
TORCH_NAMES = {  # of a layer's arrays, by ours
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# The layers whose only array has the name of the module.
LAYER_SCALE = ("layer_scale", "gamma")


def naming_schemes(model_name: str, names: set[str]) -> dict[str, dict[str, str]]:
    """PyTorch's names of a network's arrays, by ours, in each naming.

    Args:
      model_name: a key of `NAMINGS`.
      names: of the network's arrays, see `assign.array_shapes`.

    Returns:
      ``{"torchvision": {"conv1.norm.mean": "bn1.running_mean", …}, …}``; torchvision's naming is
      the first.

    Raises:
      InputError: the network is not in `NAMINGS`.
    """
    require_known("network for PyTorch's weights", model_name, NAMINGS)
    layers = {name.rpartition(".")[0] for name in names}
    return {
        scheme: _array_names(naming(layers), names)
        for scheme, naming in NAMINGS[model_name].items()
    }


def _array_names(modules: Modules, names: set[str]) -> dict[str, str]:
    result = {}
    for name in sorted(names):
        layer, _, leaf = name.rpartition(".")
        is_array = modules[layer].endswith(LAYER_SCALE)
        result[name] = modules[layer] if is_array else f"{modules[layer]}.{TORCH_NAMES[leaf]}"
    return result


def _resnet(stages: tuple[int, ...], layers: set[str]) -> Modules:
    return {layer: _resnet_module(layer, stages) for layer in layers}


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


def _vgg(layers: set[str]) -> Modules:
    """Torchvision counts a convolution and its ReLU as two features."""
    convs = {int(layer.split(".")[2]) for layer in layers if layer.startswith("convolve.")}
    features = {
        f"convolve.layers.{index}.conv": f"features.{index + sum(conv < index for conv in convs)}"
        for index in convs
    }
    return features | {"dense1": "classifier.0", "dense2": "classifier.3", "out": "classifier.6"}


def _squeezenet(layers: set[str]) -> Modules:
    """In each stage a pool comes before the fire modules."""
    parts = {
        "squeeze.conv": "squeeze",
        "expand.branches.0.conv": "expand1x1",
        "expand.branches.1.conv": "expand3x3",
    }
    modules = {"conv1.conv": "features.0", "out": "classifier.1"}
    for layer in layers - modules.keys():
        _, _, stage, _, index, part = layer.split(".", 5)
        modules[layer] = f"features.{2 + 3 * int(stage) + int(index)}.{parts[part]}"
    return modules


def _shufflenet(layers: set[str]) -> Modules:
    positions = {"side": ("branch1", (0, 2)), "main": ("branch2", (0, 3, 5))}
    modules = {"out": "fc"}
    for layer in layers - modules.keys():
        *path, part = layer.split(".")
        if path[0] in ("stem", "last"):
            modules[layer] = f"conv{1 if path[0] == 'stem' else 5}.{int(part == 'norm')}"
            continue
        _, _, stage, _, unit, branch, _, index = path
        name, first = positions[branch]
        position = first[int(index)] + (part == "norm")
        modules[layer] = f"stage{int(stage) + 2}.{unit}.{name}.{position}"
    return modules


def _densenet(separator: str, layers: set[str]) -> Modules:
    """`separator` is between the word and the number of a dense layer's parts, as in ``norm1``."""
    parts = {
        "norm.norm": f"norm{separator}1",
        "bottleneck.conv": f"conv{separator}1",
        "bottleneck.norm": f"norm{separator}2",
        "conv": f"conv{separator}2",
    }
    modules = {
        "stem.conv": "features.conv0",
        "stem.norm": "features.norm0",
        "norm.norm": "features.norm5",
        "out": "classifier",
    }
    for layer in layers - modules.keys():
        kind, number, part = layer.split(".", 2)
        if kind == "transitions":
            modules[layer] = f"features.transition{int(number) + 1}.{part.split('.')[0]}"
            continue
        _, index, part = part.split(".", 2)
        block = f"features.denseblock{int(number) + 1}.denselayer{int(index) + 1}"
        modules[layer] = f"{block}.{parts[part]}"
    return modules


NAMINGS: dict[str, dict[str, Naming]] = {
    **{name: {"torchvision": partial(_resnet, stages)} for name, (stages, _) in RESNETS.items()},
    **{name: {"torchvision": _vgg} for name in VGGS},
    "alexnet": {"torchvision": lambda _: ALEXNET},
    "squeezenet1_1": {"torchvision": _squeezenet},
    "shufflenet_v2": {"torchvision": _shufflenet},
    "densenet121": {
        "torchvision": partial(_densenet, ""),
        "torchvision's published file": partial(_densenet, "."),
    },
    **staged.NAMINGS,
}
