"""Reads Darknet's binary ``.weights`` files.

All numbers in them are little-endian:

| content                                                   | type                                |
|-----------------------------------------------------------|-------------------------------------|
| major, minor, revision                                    | i32                                 |
| number of training images so far                          | i32 before version 0.2, i64 from it |
| of each convolution of the `.cfg` in turn:                |                                     |
| its bias, n                                               | f32                                 |
| with batch norm: its scale, mean and variance, n each     | f32                                 |
| its kernel, n·c·h·w                                       | f32                                 |

A major or minor version above 1000 means that the matrices of fully-connected layers are
transposed. No network here has such layers in Darknet, so such a file is of another network, or not
a weights file at all, and is refused.

Darknet's epsilon differs between its versions: (x - mean) / (sqrt(variance) + 1e-6) on the CPU and
in the older GPU kernels, (x - mean) / sqrt(variance + 1e-5) in the newer ones and here. The latter
is smaller than the former by the factor (sqrt(v) + 1e-6) / sqrt(v + 1e-5), by about 5e-6 / v: 4e-6
of a channel's value for a variance of 1, 0.05 % for 0.01, 4.6 % for 1e-4; for a variance of 1e-5
and less, in a channel that hardly ever changes, by 29 % and more. Over all layers of Darknet-19,
with variances of 0.5 to 2, it changes the logits by 4e-5 of the largest.

Source: Darknet, `src/parser.c`, `load_weights_upto` and `load_convolutional_weights`.
"""

import math
import struct

import numpy as np
from etils import epath
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Shape, Weights, array_shapes

# The parts of Darknet-19 and YOLOv2 in the order of `darknet19.cfg` and `yolov2-voc.cfg`. A module
# does not keep the order in which its attributes were set (`nnx.merge` sorts them), and YOLOv2
# computes in another order.
PARTS = ("features", "fine", "coarse", "passthrough", "both", "out")

_LARGEST_VERSION = 1000
_HEADER_SIZE = 20

Layout = list[tuple[str, Shape]]  # names and shapes of arrays, in the order of the file


def read_darknet(path: epath.PathLike, model: nnx.Module) -> Weights:
    """Reads a ``.weights`` file.

    Args:
      path: of the file.
      model: Darknet-19 or YOLOv2, for any number of classes; its arrays may be abstract.

    Returns:
      Arrays by dotted name, kernels as ``f32[H, W, C, N]``. The number of outputs of the last layer
      is that of the file.

    Raises:
      InputError: the file is not a ``.weights`` file, is cut off or is of another network, or the
        model is not one of Darknet's.
    """
    shapes = array_shapes(model)
    data = epath.Path(path).read_bytes()
    layers, offset = convolutions(shapes), _header_size(path, data)
    layout = [entry for layer in layers[:-1] for entry in _layer_layout(layer, shapes)]
    head = _layer_layout(layers[-1], shapes)
    layout += _resize_head(head, len(data) - offset - _size(layout))
    expected = offset + _size(layout)
    weights = {}
    for name, shape in layout:
        size = 4 * math.prod(shape)
        if len(data) < offset + size:
            raise InputError(
                f"{path} ends at byte {len(data)}, within {name}, {size} bytes from byte {offset} "
                f"on; this network's file has {expected} bytes: the file is cut off, or of another "
                "network"
            )
        weights[name] = _read_array(data, offset, shape)
        offset += size
    if len(data) > offset:
        raise InputError(
            f"{path} has {len(data)} bytes, {len(data) - offset} more than this network's "
            f"{offset}: it is of another network"
        )
    return weights


def convolutions(shapes: dict[str, Shape]) -> list[str]:
    """Names of the convolutions in Darknet's order: ``features.fine.layers.0.conv``, …, ``out``.

    Args:
      shapes: of the network, from `array_shapes`.

    Raises:
      InputError: the network is not one of Darknet's.
    """
    kernels = [name.removesuffix(".kernel") for name in shapes if name.endswith(".kernel")]
    parts = {name.split(".")[0] for name in shapes}
    if not {"features", "out"} <= parts <= set(PARTS):
        raise InputError(
            "a .weights file is for --model=darknet19 or --model=yolov2; the parts of this network "
            f"are {', '.join(sorted(parts)[:4])}"
        )
    return sorted(kernels, key=_position)


def _position(name: str) -> list[int]:
    """Sort key of a convolution's name: the positions of its part and of its layer."""
    return [
        int(part) if part.isdigit() else PARTS.index(part)
        for part in name.split(".")
        if part not in ("layers", "conv")
    ]


def _layer_layout(layer: str, shapes: dict[str, Shape]) -> Layout:
    norm = layer.removesuffix("conv") + "norm"
    vectors = [f"{layer}.bias"]
    if f"{norm}.scale" in shapes:
        vectors = [f"{norm}.{name}" for name in ("bias", "scale", "mean", "var")]
    return [(name, shapes[name]) for name in (*vectors, f"{layer}.kernel")]


def _resize_head(head: Layout, size: int) -> Layout:
    """The last layer with the number of outputs that fills `size` bytes; unchanged if none does."""
    bytes_per_output = _size(head) // head[0][1][0]
    outputs, remainder = divmod(size, bytes_per_output)
    if outputs <= 0 or remainder:
        return head
    return [(name, (*shape[:-1], outputs)) for name, shape in head]


def _size(layout: Layout) -> int:
    """Size in bytes."""
    return 4 * sum(math.prod(shape) for _, shape in layout)


def _read_array(data: bytes, offset: int, shape: Shape) -> np.ndarray:
    """Reads an array; a kernel is transposed from ``[N, C, H, W]`` to ``[H, W, C, N]``."""
    flat = np.frombuffer(data, "<f4", math.prod(shape), offset).astype(np.float32)
    if len(shape) == 1:
        return flat
    height, width, inputs, outputs = shape
    return np.ascontiguousarray(flat.reshape(outputs, inputs, height, width).transpose(2, 3, 1, 0))


def _header_size(path: epath.PathLike, data: bytes) -> int:
    if len(data) < _HEADER_SIZE:
        raise InputError(
            f"{path} has {len(data)} bytes, fewer than the {_HEADER_SIZE} of a header: it is not a "
            ".weights file, or its download failed"
        )
    major, minor, revision = struct.unpack_from("<3i", data)
    if not (0 <= major < _LARGEST_VERSION and 0 <= minor < _LARGEST_VERSION and revision >= 0):
        raise InputError(
            f"{path} starts with version {major}.{minor}.{revision}, which Darknet never had for "
            "convolutional networks: it is not a .weights file, or is of another network"
        )
    return 16 if major * 10 + minor < 2 else _HEADER_SIZE
