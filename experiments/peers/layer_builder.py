"""Describes a network that is not one of `jaxcnn.models`, and draws its weights."""

import math
from collections.abc import Mapping

import numpy as np

from experiments.peers.layers import Activation, Conv, Dense, Layer, LayerNorm, Norm, Scale

Layers = tuple[Layer, ...]
Shape = tuple[int, ...]


class LayerBuilder:
    """Makes layers with weights, named and numbered in the order of the calls.

    Args:
      axes: of the images, 2 or 3.

    Attributes:
      shapes: of all weights of these layers, by their names.

    >>> build = LayerBuilder()
    >>> build.conv(8, 16, kernel=(1, 7), groups=2)
    Conv(name='conv1', padding=None, strides=1, groups=2)
    >>> build.shapes
    {'conv1.kernel': (1, 7, 4, 16)}
    """

    def __init__(self, axes: int = 2):
        self.axes = axes
        self.shapes: dict[str, Shape] = {}
        self._count = 0

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, ...] = 3,
        strides: int = 1,
        *,
        groups: int = 1,
        padding: int | None = None,
        bias: bool = False,
    ) -> Conv:
        """A convolution; by default the padding is half the kernel."""
        sides = (kernel,) * self.axes if isinstance(kernel, int) else kernel
        shapes: dict[str, Shape] = {"kernel": (*sides, inputs // groups, outputs)}
        if bias:
            shapes["bias"] = (outputs,)
        return Conv(self._register("conv", shapes), padding, strides, groups)

    def norm(self, channels: int) -> Norm:
        """Batch norm."""
        names = ("scale", "bias", "mean", "var")
        return Norm(self._register("norm", dict.fromkeys(names, (channels,))), 1e-5, 0.9)

    def layer_norm(self, channels: int) -> LayerNorm:
        """Layer norm, with the ε of ConvNeXt."""
        names = ("scale", "bias")
        return LayerNorm(self._register("norm", dict.fromkeys(names, (channels,))), 1e-6)

    def scale(self, channels: int) -> Scale:
        """A factor for each channel."""
        return Scale(self._register("scale", {"scale": (channels,)}))

    def conv_norm(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, ...] = 3,
        strides: int = 1,
        *,
        groups: int = 1,
        activation: Activation | None = None,
    ) -> Layers:
        """A convolution without bias, batch norm, and an activation if one is given."""
        conv = self.conv(inputs, outputs, kernel, strides, groups=groups)
        return (conv, self.norm(outputs), *([activation] if activation else []))

    def out(self, inputs: int, outputs: int) -> Dense:
        """The last layer."""
        self.shapes |= {"out.kernel": (inputs, outputs), "out.bias": (outputs,)}
        return Dense("out")

    def _register(self, kind: str, shapes: Mapping[str, Shape]) -> str:
        self._count += 1
        name = f"{kind}{self._count}"
        self.shapes |= {f"{name}.{weight}": shape for weight, shape in shapes.items()}
        return name


def draw_weights(shapes: Mapping[str, Shape], seed: int) -> dict[str, np.ndarray]:
    """Random weights, ``f32`` arrays by name.

    Kernels are drawn as by He et al. 2015, *Delving Deep into Rectifiers*, §2.2. Scales, biases and
    running statistics differ from 1 and 0, so that a library that leaves them out is noticed.

    >>> float(draw_weights({"norm.var": (4,)}, seed=0)["norm.var"].min()) > 0
    True
    """
    rng = np.random.default_rng(seed)
    return {name: _draw(name, shape, rng) for name, shape in shapes.items()}


def _draw(name: str, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape, np.float32)
    kind = name.rpartition(".")[2]
    if kind == "kernel":
        return values * np.float32(math.sqrt(2 / math.prod(shape[:-1])))
    offset = np.float32(kind in ("scale", "var"))
    return offset + np.float32(0.1) * (np.abs(values) if kind == "var" else values)
