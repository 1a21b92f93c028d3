"""Convolution that is fast on a CPU too, gradients included, inside loops too.

A convolution and its two gradients are three maps, each linear in both of its arguments and each the others' gradient. On a CPU

- in float32 they are this package's own kernels, where those were built (`native`). Strided, the gradient by the images, a
  convolution itself, is one for each of the places that a pixel can have between two windows, so that none multiplies zeros;
- otherwise they are convolutions in XLA's fast layout.

XLA:CPU hands a convolution to its fast library only in the layout NHWC × HWIO → NHWC. The gradients that JAX derives are in other
layouts; XLA repairs that at the top level of a program but not in the body of a loop (jax issue #12868), where they then run
tens of times slower. Those of a grouped convolution are slow too: a few groups are done as one convolution each.
GPU and TPU programs keep JAX's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import native
from jaxcnn.ops.channels import channel_sums
from jaxcnn.ops.materialize import divided, stored

NHWC = lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))

Pairs = tuple[tuple[int, int], ...]

MOST_GROUPS = 8  # AlexNet has 2; each adds three convolutions to the program


def conv_general_dilated(
    images: Array,
    kernel: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvDimensionNumbers | None = None,
    feature_group_count: int = 1,
    **options,
) -> Array:
    """`jax.lax.conv_general_dilated`, argument for argument, with CPU gradients in the fast layout.

    The fast gradients serve images ``[N, H, W, C]`` with a kernel ``[h, w, C / groups, D]``, up to eight groups and no
    dilated input, at any stride, padding and kernel dilation. All else is passed on to ``jax.lax`` unchanged.

    Returns:
      ``[N, H', W', D]``.

    Reverse mode and `vmap` work, also twice over; forward mode (`jax.jvp`) is refused by JAX, as for any `custom_vjp`.
    """
    strides = tuple(window_strides)
    dilation = tuple(rhs_dilation or (1,) * len(strides))
    divides = (
        images.shape[-1] == feature_group_count * kernel.shape[-2]
        and kernel.shape[-1] % feature_group_count == 0
    )
    plain = (
        len(strides) == 2
        and feature_group_count <= MOST_GROUPS
        and set(lhs_dilation or (1,)) == {1}
    )
    asked = {name for name, value in options.items() if value is not None} - {"precision"}
    if not (plain and divides) or dimension_numbers != NHWC or asked:
        return lax.conv_general_dilated(
            images,
            kernel,
            strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            feature_group_count,
            **options,
        )
    window = _window(
        images, kernel, strides, padding, dilation, feature_group_count, options.get("precision")
    )
    return _convolved(stored(images), kernel, window)


def conv_relu(
    images: Array,
    kernel: Array,
    bias: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """``relu(conv(images, kernel) + bias)``, which a CPU computes in one pass.

    Args:
      images: ``[N, H, W, C]``.
      kernel, bias: ``[h, w, C, D]`` and ``[D]``.
      window_strides, padding: as of `conv_general_dilated`.

    Returns:
      ``[N, H', W', D]``. The gradient of a zero is zero.
    """
    window = _window(images, kernel, tuple(window_strides), padding, (1, 1), 1, None)
    return _rectified(stored(images), kernel, bias, window)


def _window(
    images: Array,
    kernel: Array,
    strides,
    padding,
    dilation,
    groups: int,
    precision: lax.PrecisionLike,
) -> "_Window":
    if isinstance(padding, str):
        spans = [
            (size - 1) * step + 1 for size, step in zip(kernel.shape[:2], dilation, strict=True)
        ]
        padding = lax.padtype_to_pads(images.shape[1:3], spans, strides, padding)
    pads = tuple((int(low), int(high)) for low, high in padding)
    return _Window(strides, pads, dilation, images.shape[1:3], kernel.shape[:2], groups, precision)


@dataclass(frozen=True)
class _Window:
    """What is fixed of a convolution. Pairs are of the rows and the columns."""

    strides: tuple[int, int]
    pads: Pairs
    dilation: tuple[int, int]
    image: tuple[int, int]
    kernel: tuple[int, int]
    groups: int
    precision: lax.PrecisionLike

    @property
    def spans(self) -> tuple[int, ...]:
        """Pixels from a kernel's first tap to its last."""
        return tuple(
            (taps - 1) * step + 1 for taps, step in zip(self.kernel, self.dilation, strict=True)
        )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolved(images: Array, kernel: Array, window: _Window) -> Array:
    return _by_platform(_fast_convolution, _default, window, images, kernel)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _image_gradient(kernel: Array, cotangent: Array, window: _Window) -> Array:
    """``[N, H', W', D]`` back to ``[N, H, W, C]``."""
    return _by_platform(_fast_image_gradient, _default_image_gradient, window, kernel, cotangent)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _kernel_gradient(images: Array, cotangent: Array, window: _Window) -> Array:
    return _by_platform(_fast_kernel_gradient, _default_kernel_gradient, window, images, cotangent)


def _saving(function: Callable) -> Callable:
    return lambda first, second, window: (function(first, second, window), (first, second))


def _convolved_backward(window, saved, cotangent):
    images, kernel = saved
    cotangent = stored(cotangent)
    return _image_gradient(kernel, cotangent, window), _kernel_gradient(images, cotangent, window)


def _image_gradient_backward(window, saved, images):
    kernel, cotangent = saved
    return _kernel_gradient(images, cotangent, window), _convolved(images, kernel, window)


def _kernel_gradient_backward(window, saved, kernel):
    images, cotangent = saved
    return _image_gradient(kernel, cotangent, window), _convolved(images, kernel, window)


_convolved.defvjp(_saving(_convolved), _convolved_backward)
_image_gradient.defvjp(_saving(_image_gradient), _image_gradient_backward)
_kernel_gradient.defvjp(_saving(_kernel_gradient), _kernel_gradient_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _rectified(images: Array, kernel: Array, bias: Array, window: _Window) -> Array:
    def rectified(convolve: Callable) -> Callable:
        return lambda images, kernel, bias: jnp.maximum(convolve(window, images, kernel) + bias, 0)

    def fast(images, kernel, bias):
        if _in_kernels(images, kernel, bias) and native.supports(
            images, kernel, window.pads, window.dilation
        ):
            return native.conv_relu(
                images, kernel, bias, window.strides, window.pads, window.dilation
            )
        return rectified(_fast_convolution)(images, kernel, bias)

    return lax.platform_dependent(images, kernel, bias, cpu=fast, default=rectified(_default))


def _rectified_forward(images, kernel, bias, window):
    rectified = _rectified(images, kernel, bias, window)
    return rectified, (images, kernel, bias, rectified)


def _rectified_backward(window, saved, cotangent):
    images, kernel, bias, rectified = saved
    cotangent = stored(jnp.where(rectified > 0, cotangent, 0))
    gradients = (
        _image_gradient(kernel, cotangent, window),
        _kernel_gradient(images, cotangent, window),
    )
    return *gradients, channel_sums(cotangent).astype(bias.dtype)


_rectified.defvjp(_rectified_forward, _rectified_backward)


def _by_platform(fast: Callable, default: Callable, window: _Window, *arrays: Array) -> Array:
    return lax.platform_dependent(
        *arrays, cpu=partial(_in_groups, fast, window), default=partial(default, window)
    )


def _in_groups(function: Callable, window: _Window, *arrays: Array) -> Array:
    """The function on each group's share of the arrays' last axes, joined along the last axis."""
    if window.groups == 1:
        return function(window, *arrays)
    shares = zip(*(jnp.split(array, window.groups, -1) for array in arrays), strict=True)
    return jnp.concatenate([function(window, *share) for share in shares], -1)


def _xla(
    images: Array, kernel: Array, strides, pads, dilation, precision, groups: int = 1, spread=(1, 1)
) -> Array:
    return lax.conv_general_dilated(
        images, kernel, strides, pads, spread, dilation, NHWC, groups, precision=precision
    )  # fmt: skip


def _default(window: _Window, images: Array, kernel: Array) -> Array:
    return _xla(
        images,
        kernel,
        window.strides,
        window.pads,
        window.dilation,
        window.precision,
        window.groups,
    )


def _default_image_gradient(window: _Window, kernel: Array, cotangent: Array) -> Array:
    channels = kernel.shape[2] * window.groups
    images = jax.ShapeDtypeStruct((len(cotangent), *window.image, channels), cotangent.dtype)
    return jax.linear_transpose(lambda images: _default(window, images, kernel), images)(cotangent)[
        0
    ]


def _default_kernel_gradient(window: _Window, images: Array, cotangent: Array) -> Array:
    channels = images.shape[-1] // window.groups, cotangent.shape[-1]
    kernel = jax.ShapeDtypeStruct((*window.kernel, *channels), images.dtype)
    return jax.linear_transpose(lambda kernel: _default(window, images, kernel), kernel)(cotangent)[
        0
    ]


def _fast_convolution(window: _Window, images: Array, kernel: Array) -> Array:
    return _plain(images, kernel, window.strides, window.pads, window.dilation, window.precision)


def _plain(
    images: Array, kernel: Array, strides, pads: Pairs, dilation, precision, turned: bool = False
) -> Array:
    if _in_kernels(images, kernel) and native.supports(images, kernel, pads, dilation):
        return native.convolution(images, kernel, strides, pads, dilation, turned=turned)
    return _xla(images, _turned(kernel) if turned else kernel, strides, pads, dilation, precision)


def _turned(kernel: Array) -> Array:
    """By 180°, its channels exchanged."""
    return jnp.transpose(lax.rev(kernel, (0, 1)), (0, 1, 3, 2))


def _in_kernels(*arrays: Array) -> bool:
    return (
        all(array.dtype == jnp.float32 and array.size and not divided(array) for array in arrays)
        and native.available()
    )


def _fast_image_gradient(window: _Window, kernel: Array, cotangent: Array) -> Array:
    """The cotangent, spread by the strides, convolved with the kernel turned by 180° and its channels exchanged."""
    undilated = window.dilation == (1, 1) and min(map(min, window.pads)) >= 0
    if window.strides != (1, 1) and undilated and _in_kernels(kernel, cotangent):
        return _between_strides(window, kernel, cotangent)
    around = []
    for axis in range(2):
        spread = (cotangent.shape[1 + axis] - 1) * window.strides[axis] + 1
        low = window.spans[axis] - 1 - window.pads[axis][0]
        around.append((low, window.image[axis] + window.spans[axis] - 1 - spread - low))
    if window.strides == (1, 1):
        return _plain(
            cotangent, kernel, (1, 1), tuple(around), window.dilation, window.precision, turned=True
        )
    return _xla(
        cotangent,
        _turned(kernel),
        (1, 1),
        tuple(around),
        window.dilation,
        window.precision,
        spread=window.strides,
    )


def _fast_kernel_gradient(window: _Window, images: Array, cotangent: Array) -> Array:
    """The images convolved with the cotangent, examples in the place of channels and channels in that of examples."""
    if min(map(min, window.pads)) >= 0 and _in_kernels(images, cotangent):
        return native.kernel_gradient(
            images, cotangent, window.kernel, window.strides, window.pads, window.dilation
        )
    around = []
    for axis in range(2):
        spread = (cotangent.shape[1 + axis] - 1) * window.strides[axis] + 1
        reach = (window.kernel[axis] - 1) * window.dilation[axis] + spread
        around.append((window.pads[axis][0], reach - images.shape[1 + axis] - window.pads[axis][0]))
    channels_first = jnp.transpose(images, (3, 1, 2, 0))
    as_kernel = jnp.transpose(cotangent, (1, 2, 0, 3))
    gradient = _xla(
        channels_first, as_kernel, window.dilation, tuple(around), window.strides, window.precision
    )
    return jnp.transpose(gradient, (1, 2, 0, 3))


def _between_strides(window: _Window, kernel: Array, cotangent: Array) -> Array:
    """The gradient by the images, the pixels at each remainder by the strides apart: the taps that reach them are every so manyth.

    ``padded[s * m + r] = sum(cotangent[m - t] * kernel[r + s * t] for t)`` along each axis.
    """
    blocks = [-(-max(size + low, (count - 1) * stride + taps) // stride) for size, (low, _), count, stride, taps in zip(
        window.image, window.pads, cotangent.shape[1:3], window.strides, window.kernel, strict=True)]  # fmt: skip
    rows = [
        jnp.stack(
            [
                _at_remainder(window, kernel, cotangent, blocks, (i, j))
                for j in range(window.strides[1])
            ],
            3,
        )
        for i in range(window.strides[0])
    ]
    stacked = jnp.stack(rows, 2)
    padded = stacked.reshape(
        len(cotangent),
        blocks[0] * window.strides[0],
        blocks[1] * window.strides[1],
        kernel.shape[2],
    )
    (top, _), (left, _) = window.pads
    return padded[:, top : top + window.image[0], left : left + window.image[1]]


def _at_remainder(
    window: _Window, kernel: Array, cotangent: Array, blocks, remainder: tuple[int, int]
) -> Array:
    taps = kernel[remainder[0] :: window.strides[0], remainder[1] :: window.strides[1]]
    if 0 in taps.shape:
        return jnp.zeros((len(cotangent), *blocks, kernel.shape[2]), cotangent.dtype)
    around = tuple(
        (size - 1, count - given)
        for size, count, given in zip(taps.shape, blocks, cotangent.shape[1:3], strict=False)
    )
    return _plain(cotangent, taps, (1, 1), around, (1, 1), window.precision, turned=True)
