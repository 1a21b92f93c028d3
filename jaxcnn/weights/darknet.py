"""Darknet's binary ``.weights`` files.

Source: Darknet, `src/parser.c`, `load_weights_upto` and `load_convolutional_weights`. All numbers are little-endian:

| what                                  | type                                                                      |
|---------------------------------------|---------------------------------------------------------------------------|
| major, minor, revision                | i32                                                                       |
| seen: images that it was trained on   | i32 where major · 10 + minor < 2, else i64                                |
| each convolution of the `.cfg`        | f32: bias n; with batch norm: scale n, mean n, variance n; kernel n·c·h·w |

A major or minor above 1000 says that the matrices of fully-connected layers are transposed. No network here has such layers
in Darknet, so these files are of another network, or no weights at all: they are refused.

Darknet's epsilon differs between its versions: (x - mean) / (sqrt(variance) + 1e-6) on the CPU and in the older kernels for
GPUs, (x - mean) / sqrt(variance + 1e-5) in the newer ones, as here. Ours is smaller than the first by the factor
(sqrt(v) + 1e-6) / sqrt(v + 1e-5), that is by about 5e-6 / v: 4e-6 of a channel's value for a variance of 1, 0.05 % for 0.01,
4.6 % for 1e-4; for a variance of 1e-5 and less, a channel that hardly ever changes, it is 29 % and more. Over all layers of
Darknet-19, with variances of 0.5 to 2, it moves the logits by 4e-5 of the largest.
"""

import math
import struct

import numpy as np
from etils import epath
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Shape, Weights, names

# The parts of Darknet-19 and YOLOv2 in the order of `darknet19.cfg` and `yolov2-voc.cfg`. A module does not keep the order in
# which its attributes were set (`nnx.merge` sorts them), and YOLOv2 computes in another one.
PARTS = ("features", "fine", "coarse", "passthrough", "both", "out")

_LARGEST_VERSION = 1000


def read_darknet(path: epath.PathLike, model: nnx.Module) -> Weights:
    """Reads a ``.weights`` file.

    Args:
      path: of the file.
      model: the network that it is for, Darknet-19 or YOLOv2, for any number of classes; may be abstract.

    Returns:
      Arrays by their names in the network, kernels ``f32[H, W, C, N]``. The last layer has the file's number of outputs.

    Raises:
      InputError: the file is no such file, cut off, or of another network; or the network is none of Darknet's.
    """
    shapes = names(model)
    data = epath.Path(path).read_bytes()
    layers, offset = convolutions(shapes), _header(path, data)
    head = _entries(layers[-1], shapes)
    layout = [entry for layer in layers[:-1] for entry in _entries(layer, shapes)]
    layout += _with_outputs(head, len(data) - offset - _size(layout))
    weights = {}
    for number, (name, shape) in enumerate(layout):
        size = 4 * math.prod(shape)
        if len(data) < offset + size:
            raise InputError(
                f"{path} ends at byte {len(data)}, within {name}, {size} bytes from byte {offset} on; this network's file has {offset + _size(layout[number:])} bytes: the file is cut off, or of another network"
            )
        weights[name] = _array(data, offset, shape)
        offset += size
    if len(data) > offset:
        raise InputError(
            f"{path} has {len(data)} bytes, {len(data) - offset} more than this network's {offset}: it is of another network"
        )
    return weights


def convolutions(shapes: dict[str, Shape]) -> list[str]:
    """The network's convolutions in Darknet's order, as the names of their layers: ``features.fine.layers.0.conv``, …, ``out``."""
    kernels = [name.removesuffix(".kernel") for name in shapes if name.endswith(".kernel")]
    found = {name.split(".")[0] for name in shapes}
    if not {"features", "out"} <= found <= set(PARTS):
        raise InputError(
            f"a .weights file is for --model=darknet19 or --model=yolov2; this network's parts are {', '.join(sorted(found)[:4])}"
        )
    return sorted(kernels, key=_place)


def _place(name: str) -> list[int]:
    return [
        int(part) if part.isdigit() else PARTS.index(part)
        for part in name.split(".")
        if part not in ("layers", "conv")
    ]


def _entries(layer: str, shapes: dict[str, Shape]) -> list[tuple[str, Shape]]:
    """A convolution's arrays in the order of the file."""
    norm = layer.removesuffix("conv") + "norm"
    first = (
        [f"{norm}.{part}" for part in ("bias", "scale", "mean", "var")]
        if f"{norm}.scale" in shapes
        else [f"{layer}.bias"]
    )
    return [(name, shapes[name]) for name in (*first, f"{layer}.kernel")]


def _with_outputs(head: list[tuple[str, Shape]], size: int) -> list[tuple[str, Shape]]:
    """The last layer with as many outputs as fill `size` bytes, as it is where no number does."""
    outputs, left = divmod(size, _size(head) // head[0][1][0])
    return (
        [(name, (*shape[:-1], outputs)) for name, shape in head]
        if outputs > 0 and not left
        else head
    )


def _size(layout: list[tuple[str, Shape]]) -> int:
    """In bytes."""
    return 4 * sum(math.prod(shape) for _, shape in layout)


def _array(data: bytes, offset: int, shape: Shape) -> np.ndarray:
    """From the file's ``[N, C, H, W]`` to ``[H, W, C, N]``; vectors as they are."""
    flat = np.frombuffer(data, "<f4", math.prod(shape), offset).astype(np.float32)
    if len(shape) == 1:
        return flat
    height, width, inputs, outputs = shape
    return np.ascontiguousarray(flat.reshape(outputs, inputs, height, width).transpose(2, 3, 1, 0))


def _header(path: epath.PathLike, data: bytes) -> int:
    """The header's length."""
    if len(data) < 20:
        raise InputError(
            f"{path} has {len(data)} bytes, not even the 20 of a header: it is no .weights file, or its download failed"
        )
    major, minor, revision = struct.unpack_from("<3i", data)
    if not (0 <= major < _LARGEST_VERSION and 0 <= minor < _LARGEST_VERSION and revision >= 0):
        raise InputError(
            f"{path} starts with version {major}.{minor}.{revision}, which Darknet never had for networks of convolutions: it is no .weights file, or of another network"
        )
    return 16 if major * 10 + minor < 2 else 20
