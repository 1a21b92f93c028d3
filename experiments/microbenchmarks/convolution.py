"""Convolutions as real networks have them: forward, the two gradients, and with the kernel turned (systems A10, B1, C6, E4)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
from jax import Array, lax

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times
from jaxcnn.ops import conv_general_dilated
from jaxcnn.ops.convolution import NHWC


@dataclass(frozen=True)
class Layer:
    """A convolution of a published network.

    Attributes:
      name: the network's and the layer's.
      images: in a batch, so many that a CPU takes a fraction of a second.
      size: height and width of the images.
      inputs, outputs: channels.
      kernel: its height and width.
      stride: of both axes.
      padding: pixels on every side.
      quick: what of it is among the quick ones: by its lowering, and the kernel turned.
    """

    name: str
    images: int
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    quick: tuple[str, ...] = ()


LAYERS = (
    Layer("lenet5_c3", 64, 14, 6, 16, 5, 1, 0, quick=("ours",)),  # LeCun et al. 1998, §II.B
    Layer("a1_first", 4, 256, 3, 32, 3, 1, 1),  # system A1, cats versus dogs
    Layer("a1_second", 4, 256, 32, 32, 3, 1, 1),
    Layer("a1_last", 16, 10, 512, 512, 3, 1, 1),
    Layer(
        "vgg16_conv1_2", 2, 224, 64, 64, 3, 1, 1
    ),  # Simonyan & Zisserman 2015, table 1, configuration D
    Layer("vgg16_conv3_2", 4, 56, 256, 256, 3, 1, 1),
    Layer("vgg16_conv5_2", 8, 14, 512, 512, 3, 1, 1),
    Layer("resnet50_conv1", 8, 224, 3, 64, 7, 2, 3),  # He et al. 2016, table 1
    Layer("resnet50_conv2_x", 8, 56, 64, 64, 3, 1, 1, quick=("ours", "native", "turned")),
    Layer("resnet50_conv3_x_narrow", 8, 28, 512, 128, 1, 1, 0),
    Layer("resnet50_conv5_x", 16, 7, 512, 512, 3, 1, 1),
    Layer("darknet19_conv3", 8, 64, 64, 128, 3, 1, 1),  # Redmon & Farhadi 2017, table 6, at 256×256
    Layer("darknet19_conv15", 16, 8, 1024, 512, 1, 1, 0),
    Layer("darknet19_conv14", 16, 8, 512, 1024, 3, 1, 1),
)

Convolve = Callable[[Array, Array], Array]


def kernels(platform: str) -> list[Kernel]:
    """Every layer in every direction as our networks do it and as JAX has it; in bfloat16 where that is an accelerator's own."""
    halves = () if platform == "cpu" else ("bfloat16",)
    return [
        *(_kernel(layer, way, "ours", "float32") for layer in LAYERS for way in DIRECTIONS),
        *(_kernel(layer, way, "native", "float32") for layer in LAYERS for way in DIRECTIONS),
        *(
            _kernel(layer, way, "ours", dtype)
            for dtype in halves
            for layer in LAYERS
            for way in DIRECTIONS
        ),
        *(_turned(layer) for layer in LAYERS if layer.quick),
    ]


def convolve(images: Array, kernel: Array, *, layer: Layer, lowering: str) -> Array:
    """The cross-correlation that neural networks call a convolution: ``[N, H, W, C] * [h, w, C, D]``."""
    function = {"ours": conv_general_dilated, "native": lax.conv_general_dilated}[lowering]
    strides, pads = (layer.stride,) * 2, ((layer.padding,) * 2,) * 2
    return function(images, kernel, strides, pads, dimension_numbers=NHWC)


def true_convolution(images: Array, kernel: Array, *, layer: Layer) -> Array:
    """The convolution of mathematics: the kernel turned by 180° in the plane, then as `convolve`."""
    return convolve(images, lax.rev(kernel, (0, 1)), layer=layer, lowering="ours")


def input_gradient(images: Array, kernel: Array, cotangent: Array, *, convolve: Convolve) -> Array:
    """Of ``sum(cotangent * convolve(images, kernel))`` with respect to the images, of which only the shape is used."""
    return jax.vjp(lambda x: convolve(x, kernel), images)[1](cotangent)[0]


def kernel_gradient(images: Array, kernel: Array, cotangent: Array, *, convolve: Convolve) -> Array:
    """Of the same with respect to the kernel."""
    return jax.vjp(lambda k: convolve(images, k), kernel)[1](cotangent)[0]


def forward(images: Array, kernel: Array, cotangent: Array, *, convolve: Convolve) -> Array:
    """The convolution itself; the cotangent is not used."""
    del cotangent
    return convolve(images, kernel)


DIRECTIONS = {
    "forward": forward,
    "input_gradient": input_gradient,
    "kernel_gradient": kernel_gradient,
}


def _shapes(layer: Layer) -> tuple[tuple[int, ...], ...]:
    """Of images, kernel and outputs."""
    size = (layer.size + 2 * layer.padding - layer.kernel) // layer.stride + 1
    return (
        (layer.images, layer.size, layer.size, layer.inputs),
        (layer.kernel, layer.kernel, layer.inputs, layer.outputs),
        (layer.images, size, size, layer.outputs),
    )


def _label(layer: Layer) -> str:
    stride = f" /{layer.stride}" if layer.stride > 1 else ""
    return f"{times(*_shapes(layer)[:2])}{stride}"


def _kernel(layer: Layer, direction: str, lowering: str, dtype: str) -> Kernel:
    theirs = "" if lowering == "ours" else f"-{lowering}"
    return Kernel(
        f"convolution-{layer.name}-{direction}-{dtype}{theirs}", "convolution", _label(layer), dtype,
        normal(dtype, *_shapes(layer)),
        partial(DIRECTIONS[direction], convolve=partial(convolve, layer=layer, lowering=lowering)),
        preset(lowering in layer.quick), lowering=lowering, note=direction.replace("_", " "),
    )  # fmt: skip


def _turned(layer: Layer) -> Kernel:
    return Kernel(
        f"true_convolution-{layer.name}-float32", "convolution", _label(layer), "float32", normal("float32", *_shapes(layer)[:2]),
        partial(true_convolution, layer=layer), preset("turned" in layer.quick), lowering="ours",
        note="forward, the kernel turned by 180°",
    )  # fmt: skip
