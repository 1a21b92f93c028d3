"""Convolutions of published networks: forward, both gradients, and with a flipped kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
from jax import Array, lax

from experiments.microbenchmarks.kernel import Kernel, format_shapes, normal_operands
from jaxcnn.ops import conv_general_dilated
from jaxcnn.ops.conv_spec import NHWC


@dataclass(frozen=True)
class Layer:
    """A convolution of a published network.

    Attributes:
      name: of the network and the layer.
      images: in a batch; few enough that a CPU takes a fraction of a second.
      size: height and width of the images.
      inputs, outputs: the number of channels.
      kernel: its height and width.
      stride: along both axes.
      padding: pixels on every side; half the kernel if not given.
      quick: which of its kernels are in the quick preset: lowerings, and ``flipped``.
    """

    name: str
    images: int
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int | None = None
    quick: tuple[str, ...] = ()

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of images, kernel and outputs."""
        size = (self.size + 2 * self.pad - self.kernel) // self.stride + 1
        return (
            (self.images, self.size, self.size, self.inputs),
            (self.kernel, self.kernel, self.inputs, self.outputs),
            (self.images, size, size, self.outputs),
        )

    @property
    def pad(self) -> int:
        """Pixels of padding on every side."""
        return self.kernel // 2 if self.padding is None else self.padding

    @property
    def label(self) -> str:
        """Shapes of images and kernel, and the stride, as text."""
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{format_shapes(*self.shapes[:2])}{stride}"


LAYERS = (
    # LeCun et al. 1998, §II.B
    Layer(
        "lenet5_c3", images=64, size=14, inputs=6, outputs=16, kernel=5, padding=0, quick=("ours",)
    ),
    # cats versus dogs
    Layer("a1_first", images=4, size=256, inputs=3, outputs=32, kernel=3),
    Layer("a1_second", images=4, size=256, inputs=32, outputs=32, kernel=3),
    Layer("a1_last", images=16, size=10, inputs=512, outputs=512, kernel=3),
    # Simonyan & Zisserman 2015, table 1, configuration D
    Layer("vgg16_conv1_2", images=2, size=224, inputs=64, outputs=64, kernel=3),
    Layer("vgg16_conv3_2", images=4, size=56, inputs=256, outputs=256, kernel=3),
    Layer("vgg16_conv5_2", images=8, size=14, inputs=512, outputs=512, kernel=3),
    # He et al. 2016, table 1
    Layer("resnet50_conv1", images=8, size=224, inputs=3, outputs=64, kernel=7, stride=2),
    Layer(
        "resnet50_conv2_x",
        images=8,
        size=56,
        inputs=64,
        outputs=64,
        kernel=3,
        quick=("ours", "native", "flipped"),
    ),
    Layer("resnet50_conv3_x_narrow", images=8, size=28, inputs=512, outputs=128, kernel=1),
    Layer("resnet50_conv5_x", images=16, size=7, inputs=512, outputs=512, kernel=3),
    # Redmon & Farhadi 2017, table 6, at 256×256
    Layer("darknet19_conv3", images=8, size=64, inputs=64, outputs=128, kernel=3),
    Layer("darknet19_conv15", images=16, size=8, inputs=1024, outputs=512, kernel=1),
    Layer("darknet19_conv14", images=16, size=8, inputs=512, outputs=1024, kernel=3),
)

Convolve = Callable[[Array, Array], Array]


def kernels(platform: str) -> list[Kernel]:
    """Every layer in every direction, as `jaxcnn.ops` and as JAX compute it.

    In bfloat16 too on accelerators, which compute in it natively.
    """
    variants = [("ours", "float32"), ("native", "float32")]
    if platform != "cpu":
        variants.append(("ours", "bfloat16"))
    return [
        *(
            _kernel(layer, direction, lowering, dtype)
            for lowering, dtype in variants
            for layer in LAYERS
            for direction in DIRECTIONS
        ),
        *(_flipped_kernel(layer) for layer in LAYERS if layer.quick),
    ]


def convolve(images: Array, kernel: Array, *, layer: Layer, lowering: str) -> Array:
    """What neural networks call convolution, a cross-correlation.

    ``[N, H, W, C] * [h, w, C, D]``.
    """
    function = {"ours": conv_general_dilated, "native": lax.conv_general_dilated}[lowering]
    strides, pads = (layer.stride,) * 2, ((layer.pad,) * 2,) * 2
    return function(images, kernel, strides, pads, dimension_numbers=NHWC)


def true_convolution(images: Array, kernel: Array, *, layer: Layer) -> Array:
    """The mathematical convolution: `convolve` with the kernel flipped along both axes."""
    return convolve(images, lax.rev(kernel, (0, 1)), layer=layer, lowering="ours")


def input_gradient(images: Array, kernel: Array, cotangent: Array, *, convolve: Convolve) -> Array:
    """The gradient of ``sum(cotangent * convolve(images, kernel))`` with respect to the images.

    Of the images only the shape is used.
    """
    return jax.vjp(lambda x: convolve(x, kernel), images)[1](cotangent)[0]


def kernel_gradient(images: Array, kernel: Array, cotangent: Array, *, convolve: Convolve) -> Array:
    """The gradient of ``sum(cotangent * convolve(images, kernel))`` with respect to the kernel."""
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


def _kernel(layer: Layer, direction: str, lowering: str, dtype: str) -> Kernel:
    suffix = "" if lowering == "ours" else f"-{lowering}"
    function = partial(convolve, layer=layer, lowering=lowering)
    return Kernel(
        name=f"convolution-{layer.name}-{direction}-{dtype}{suffix}",
        group="convolution",
        shape=layer.label,
        dtype=dtype,
        make_operands=normal_operands(dtype, *layer.shapes),
        function=partial(DIRECTIONS[direction], convolve=function),
        quick=lowering in layer.quick,
        lowering=lowering,
        note=direction.replace("_", " "),
    )


def _flipped_kernel(layer: Layer) -> Kernel:
    return Kernel(
        name=f"true_convolution-{layer.name}-float32",
        group="convolution",
        shape=layer.label,
        dtype="float32",
        make_operands=normal_operands("float32", *layer.shapes[:2]),
        function=partial(true_convolution, layer=layer),
        quick="flipped" in layer.quick,
        lowering="ours",
        note="forward, with a flipped kernel",
    )
