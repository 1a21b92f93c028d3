"""Torchvision's and timm's names of networks that consist of stages of blocks.

| network              | torchvision's names                  | timm's names                       |
|----------------------|--------------------------------------|------------------------------------|
| mobilenet_v2         | ``features.1.conv.0.0``              | ``blocks.0.0.conv_dw``             |
| mobilenet_v3_large   | ``features.1.block.0.0``             | ``blocks.0.0.conv_dw``             |
| efficientnet_b0, …   | ``features.1.0.block.0.0``           | ``blocks.0.0.conv_dw``             |
| convnext_tiny        | ``features.1.0.block.0``             | ``stages.0.blocks.0.conv_dw``      |
| regnet_y_400mf       | ``trunk_output.block1.block1-0.f.a`` | ``s1.b1.conv1``                    |

In torchvision's names, the number of a layer within its block is its position; in timm's, the kinds
of convolutions and the batch norms are counted.
"""

from collections.abc import Callable
from functools import partial

Modules = dict[str, str]
Blocks = dict[tuple[int, int], list[str]]  # the parts of each block, by stage and number

# The parts of an inverted residual, in their order.
PARTS = ("expand", "depthwise", "excite", "project")
# Timm's names of the convolutions, by the parts of the block that have one.
TIMM_CONVS = {
    ("expand", "depthwise", "project"): ("conv_pw", "conv_dw", "conv_pwl"),
    ("depthwise", "project"): ("conv_dw", "conv_pw"),
    ("expand", "project"): ("conv_exp", "conv_pwl"),
    ("expand",): ("conv",),
}
MOBILENET_V3_STAGES = 6  # timm counts the last convolution as a seventh


def inverted_torchvision(layers: set[str], *, container: str, is_flat: bool, head: str) -> Modules:
    """Torchvision's names of a network of inverted residuals.

    Args:
      layers: ours.
      container: the name of the sequence of a block's layers.
      is_flat: blocks are counted through all stages.
      head: the name of the last layer.
    """
    blocks = _blocks(layers)
    last = (len(blocks) if is_flat else 1 + max(stage for stage, _ in blocks)) + 1
    modules = {"out": head, "dense": "classifier.0"} | {
        f"{name}.{part}": f"features.{index}.{position}"
        for name, index in (("stem", 0), ("last", last))
        for position, part in enumerate(("conv", "norm"))
    }
    for flat, ((stage, number), parts) in enumerate(sorted(blocks.items()), 1):
        block = f"features.{flat if is_flat else f'{stage + 1}.{number}'}.{container}"
        ours = f"stages.layers.{stage}.layers.{number}"
        for index, part in enumerate(parts):
            if part == "excite":
                names = {"reduce": f"{index}.fc1", "expand": f"{index}.fc2"}
            elif part == "project" and container == "conv":  # MobileNetV2: not a module of its own
                names = {"conv": f"{index}", "norm": f"{index + 1}"}
            else:
                names = {"conv": f"{index}.0", "norm": f"{index}.1"}
            modules |= {
                f"{ours}.{part}.{ours_}": f"{block}.{name}" for ours_, name in names.items()
            }
    return {layer: modules[layer] for layer in layers}


def inverted_timm(layers: set[str]) -> Modules:
    """Timm's names of a network of inverted residuals."""
    modules = {"stem.conv": "conv_stem", "stem.norm": "bn1", "out": "classifier"}
    if "dense" in layers:  # MobileNetV3
        last = f"blocks.{MOBILENET_V3_STAGES}.0"
        modules |= {"last.conv": f"{last}.conv", "last.norm": f"{last}.bn1", "dense": "conv_head"}
    else:
        modules |= {"last.conv": "conv_head", "last.norm": "bn2"}
    for (stage, number), parts in _blocks(layers).items():
        block, ours = f"blocks.{stage}.{number}", f"stages.layers.{stage}.layers.{number}"
        modules[f"{ours}.excite.reduce"] = f"{block}.se.conv_reduce"
        modules[f"{ours}.excite.expand"] = f"{block}.se.conv_expand"
        convs = tuple(part for part in parts if part != "excite")
        for index, (part, name) in enumerate(zip(convs, TIMM_CONVS[convs], strict=True), 1):
            modules[f"{ours}.{part}.conv"] = f"{block}.{name}"
            modules[f"{ours}.{part}.norm"] = f"{block}.bn{index}"
    return {layer: modules[layer] for layer in layers}


def _blocks(layers: set[str]) -> Blocks:
    blocks: Blocks = {}
    for layer in layers:
        if layer.startswith("stages."):
            _, _, stage, _, number, part, _ = layer.split(".")
            parts = blocks.setdefault((int(stage), int(number)), [])
            if part not in parts:
                parts.append(part)
    return {block: sorted(parts, key=PARTS.index) for block, parts in blocks.items()}


def convnext_torchvision(layers: set[str]) -> Modules:
    """Torchvision counts stem, stages and downsampling in one sequence."""
    parts = {"depthwise": "block.0", "norm": "block.2", "expand": "block.3", "project": "block.5"}
    modules = {
        "downsamples.0.conv": "features.0.0",
        "downsamples.0.norm": "features.0.1",
        "norm": "classifier.0",
        "out": "classifier.2",
    }
    for layer in layers - modules.keys():
        kind, stage, *rest = layer.split(".")
        if kind == "downsamples":
            modules[layer] = f"features.{2 * int(stage)}.{0 if rest == ['norm'] else 1}"
        else:
            _, block, part = rest
            modules[layer] = f"features.{2 * int(stage) + 1}.{block}.{parts.get(part, part)}"
    return modules


def convnext_timm(layers: set[str]) -> Modules:
    """Timm counts downsampling as a part of the stage that follows."""
    parts = {
        "depthwise": "conv_dw",
        "norm": "norm",
        "expand": "mlp.fc1",
        "project": "mlp.fc2",
        "layer_scale": "gamma",
    }
    modules = {
        "downsamples.0.conv": "stem.0",
        "downsamples.0.norm": "stem.1",
        "norm": "head.norm",
        "out": "head.fc",
    }
    for layer in layers - modules.keys():
        kind, stage, *rest = layer.split(".")
        if kind == "downsamples":
            modules[layer] = f"stages.{stage}.downsample.{0 if rest == ['norm'] else 1}"
        else:
            _, block, part = rest
            modules[layer] = f"stages.{stage}.blocks.{block}.{parts[part]}"
    return modules


def regnet_torchvision(layers: set[str]) -> Modules:
    """Torchvision has the stage's number in the names of its blocks too."""
    parts = {
        **{f"conv{n}.{p}": f"f.{'abc'[n - 1]}.{i}" for n in (1, 2, 3) for i, p in _CONV_NORM},
        **{f"shortcut.{p}": f"proj.{i}" for i, p in _CONV_NORM},
        "excite.reduce": "f.se.fc1",
        "excite.expand": "f.se.fc2",
    }
    modules = {"stem.conv": "stem.0", "stem.norm": "stem.1", "out": "fc"}
    for layer in layers - modules.keys():
        _, _, stage, _, block, part = layer.split(".", 5)
        name = f"block{int(stage) + 1}"
        modules[layer] = f"trunk_output.{name}.{name}-{block}.{parts[part]}"
    return modules


def regnet_timm(layers: set[str]) -> Modules:
    """Timm's names are closest to ours."""
    words = {"norm": "bn", "reduce": "fc1", "expand": "fc2"}
    units = {"excite": "se", "shortcut": "downsample"}
    modules = {"out": "head.fc"}
    for layer in layers - modules.keys():
        *path, unit, part = layer.split(".")
        block = f"s{int(path[2]) + 1}.b{int(path[4]) + 1}." if path else ""
        modules[layer] = f"{block}{units.get(unit, unit)}.{words.get(part, part)}"
    return modules


_CONV_NORM = ((0, "conv"), (1, "norm"))
_efficientnet = partial(inverted_torchvision, container="block", is_flat=False, head="classifier.1")

NAMINGS: dict[str, dict[str, Callable[[set[str]], Modules]]] = {
    "mobilenet_v2": {
        "torchvision": partial(
            inverted_torchvision, container="conv", is_flat=True, head="classifier.1"
        ),
        "timm": inverted_timm,
    },
    "mobilenet_v3_large": {
        "torchvision": partial(
            inverted_torchvision, container="block", is_flat=True, head="classifier.3"
        ),
        "timm": inverted_timm,
    },
    "efficientnet_b0": {"torchvision": _efficientnet, "timm": inverted_timm},
    "efficientnet_v2_s": {"torchvision": _efficientnet, "timm": inverted_timm},
    "convnext_tiny": {"torchvision": convnext_torchvision, "timm": convnext_timm},
    "regnet_y_400mf": {"torchvision": regnet_torchvision, "timm": regnet_timm},
}
