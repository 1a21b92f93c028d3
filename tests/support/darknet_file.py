"""Writes random weights in Darknet's file format, with its layers from the paper's table."""

import struct

import numpy as np

# Redmon & Farhadi 2017, table 6: filters and side of each convolution, or a pool.
DARKNET19 = [
    *((32, 3), "pool"),
    *((64, 3), "pool"),
    *((128, 3), (64, 1), (128, 3), "pool"),
    *((256, 3), (128, 1), (256, 3), "pool"),
    *((512, 3), (256, 1), (512, 3), (256, 1), (512, 3), "pool"),
    *((1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3)),
    (1000, 1),
]

DarknetLayer = tuple[int, int, int]  # filters, side, input channels
DarknetArrays = list[dict[str, np.ndarray]]  # arrays by Darknet's names, per layer


def _layers() -> list[DarknetLayer]:
    layers, inputs = [], 3
    for filters, side in (row for row in DARKNET19 if row != "pool"):
        layers.append((filters, side, inputs))
        inputs = filters
    return layers


DARKNET19_LAYERS = _layers()
# `yolov2-voc.cfg`: the features of Darknet-19, then its own layers in its order.
YOLOV2_LAYERS = [
    *DARKNET19_LAYERS[:-1],
    (1024, 3, 1024),
    (1024, 3, 1024),
    (64, 1, 512),
    (1024, 3, 4 * 64 + 1024),
    (125, 1, 1024),
]


def darknet_file(
    layers: list[DarknetLayer], version: tuple[int, int, int] = (0, 2, 0), seed: int = 0
) -> tuple[bytes, DarknetArrays]:
    """A ``.weights`` file in which all layers but the last have batch norm.

    Returns:
      The content of the file, and its arrays in the shapes that Darknet gives them.
    """
    rng = np.random.default_rng(seed)
    images_format = "<i" if version[0] * 10 + version[1] < 2 else "<q"
    parts = [struct.pack("<3i", *version) + struct.pack(images_format, 12345)]
    arrays = []
    for number, (filters, side, inputs) in enumerate(layers):
        layer = {"beta": rng.normal(0, 0.3, filters)}
        if number < len(layers) - 1:
            layer["gamma"] = rng.uniform(0.5, 1.5, filters)
            layer["mean"] = rng.normal(0, 0.3, filters)
            layer["variance"] = rng.uniform(0.5, 2, filters)
        kernel = rng.standard_normal((filters, inputs, side, side), np.float32)
        layer["kernel"] = kernel * (2 / (inputs * side**2)) ** 0.5
        arrays.append({name: array.astype(np.float32) for name, array in layer.items()})
        parts += [array.astype("<f4").tobytes() for array in arrays[-1].values()]
    return b"".join(parts), arrays
