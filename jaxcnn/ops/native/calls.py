"""The foreign function calls: convolutions, their gradients with respect to the kernel, products.

All arrays are float32. The caller defines derivatives. Under `jax.vmap` the calls are made one
after the other. A mismatch of shapes is an error of the call, with the shapes that are expected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.ops.native.loader import CALL_PREFIX, available
from jaxcnn.ops.native.winograd import winograd_tile

Pair = tuple[int, ...]  # of two numbers, like the slice of a shape
Pads = tuple[tuple[int, int], ...]  # of two pairs


def can_compute(*operands: Array | jax.ShapeDtypeStruct) -> bool:
    """Whether kernels may be called in the current context for such operands, in float32.

    That is for float32 and for half precisions, which are converted, but not for empty arrays.
    """
    dtypes = (jnp.float32, jnp.bfloat16, jnp.float16)
    return available() and all(each.dtype in dtypes and each.size > 0 for each in operands)


@dataclass(frozen=True)
class Window:
    """How a kernel is moved over images.

    Attributes:
      strides: steps between windows, down and across.
      pads: pixels before and after the rows, and before and after the columns.
      dilation: distances between neighboring taps, down and across.
      groups: of channels, each with a kernel of its own.
      allows_winograd: whether Winograd's method may be used, which has larger rounding errors.
    """

    strides: Pair = (1, 1)
    pads: Pads = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1
    allows_winograd: bool = True

    def fits(self, image_size: Sequence[int], taps: Sequence[int]) -> bool:
        """Whether no padding in front is negative, and the kernel fits into the padded images."""
        is_cropped = any(low < 0 for low, _ in self.pads)
        return not is_cropped and min(self.result_size(image_size, taps)) > 0

    def result_size(self, image_size: Sequence[int], taps: Sequence[int]) -> Pair:
        """Rows and columns of the result."""
        axes = zip(image_size, taps, self.strides, self.pads, self.dilation, strict=True)
        return tuple(
            (size + sum(pad) - (count - 1) * step - 1) // stride + 1
            for size, count, stride, pad, step in axes
        )


def convolution(images: Array, kernel: Array, window: Window, *, flipped: bool = False) -> Array:
    """A convolution whose window `fits`.

    Args:
      images: ``f32[N, H, W, C]``.
      kernel: ``f32[h, w, C / groups, D]``; ``f32[h, w, D / groups, C]`` if flipped.
      window: see `Window`.
      flipped: rotate the kernel by 180 degrees and exchange its channels first, as in the gradient
        of a convolution with respect to its images.

    Returns:
      ``f32[N, H', W', D]``.
    """
    outputs = kernel.shape[2] * window.groups if flipped else kernel.shape[3]
    call = _convolution_call("convolution", images, kernel.shape[:2], outputs, window)
    return call(images, kernel, flipped=flipped)


def conv_relu(images: Array, kernel: Array, bias: Array, window: Window) -> Array:
    """``relu(convolution(images, kernel, window) + bias)``, with a bias ``f32[D]``."""
    call = _convolution_call("conv_relu", images, kernel.shape[:2], kernel.shape[3], window)
    return call(images, kernel, bias)


def kernel_gradient(images: Array, cotangent: Array, taps: Pair, window: Window) -> Array:
    """The gradient of `convolution` with respect to its kernel.

    Args:
      images: ``f32[N, H, W, C]``.
      cotangent: ``f32[N, H', W', D]``.
      taps: height and width of the kernel, ``h`` and ``w``.
      window: that of `convolution`.

    Returns:
      ``f32[h, w, C / groups, D]``.
    """
    channels, outputs = images.shape[3] // window.groups, cotangent.shape[3]
    sizes = (channels, outputs // window.groups)
    tile = 0  # with groups, sums over few channels hide less of Winograd's rounding errors
    if window.groups == 1:
        tile = _winograd_tile("kernel_gradient", taps, sizes, cotangent.shape, window)
    call = _Call("kernel_gradient", (*taps, channels, outputs), window)
    return call(images, cotangent, groups=np.int64(window.groups), winograd=np.int64(tile))


def depthwise(images: Array, kernel: Array, window: Window) -> Array:
    """A convolution in which every channel has a window of its own; its window `fits`.

    Args:
      images: ``f32[N, H, W, C]``.
      kernel: ``f32[h, w, 1, C]``.
      window: see `Window`; its groups are not used.

    Returns:
      ``f32[N, H', W', C]``.
    """
    size = window.result_size(images.shape[1:3], kernel.shape[:2])
    call = _Call("depthwise", (len(images), *size, images.shape[3]), window)
    return call(images, kernel, transposed=False)


def depthwise_image_gradient(
    cotangent: Array, kernel: Array, image_size: Pair, window: Window
) -> Array:
    """The gradient ``f32[N, H, W, C]`` of `depthwise` with respect to its images.

    Args:
      cotangent: ``f32[N, H', W', C]``.
      kernel: ``f32[h, w, 1, C]``.
      image_size: ``H`` and ``W``.
      window: that of `depthwise`; also for a stride of more than one.
    """
    call = _Call("depthwise", (len(cotangent), *image_size, cotangent.shape[3]), window)
    return call(cotangent, kernel, transposed=True)


def depthwise_kernel_gradient(images: Array, cotangent: Array, taps: Pair, window: Window) -> Array:
    """The gradient ``f32[h, w, 1, C]`` of `depthwise` with respect to its kernel."""
    call = _Call("depthwise_gradient", (*taps, 1, images.shape[3]), window)
    return call(images, cotangent)


def product(left: Array, right: Array, *, transposed: tuple[bool, bool] = (False, False)) -> Array:
    """The matrix product ``left @ right``, as a convolution of images one pixel high.

    Args:
      left: ``f32[M, K]``; ``f32[K, M]`` if transposed.
      right: ``f32[K, N]``; ``f32[N, K]`` if transposed.
      transposed: whether ``left`` and ``right`` are transposed before the product.

    Returns:
      ``f32[M, N]``.
    """
    image = left[None, None]
    if transposed[0]:
        cotangent = (right.T if transposed[1] else right)[None, None]
        return kernel_gradient(image, cotangent, (1, 1), Window())[0, 0]
    return convolution(image, right[None, None], Window(), flipped=transposed[1])[0, 0]


@dataclass(frozen=True)
class _Call:
    """A foreign function call.

    Attributes:
      name: a key of `jaxcnn.ops.native.loader.HANDLERS`.
      shape: that of the result.
      window: of the convolution.
    """

    name: str
    shape: tuple[int, ...]
    window: Window

    def __call__(self, *operands: Array, **attributes: bool | np.int64) -> Array:
        result = jax.ShapeDtypeStruct(self.shape, jnp.float32)
        call = jax.ffi.ffi_call(CALL_PREFIX + self.name, result, vmap_method="sequential")
        return call(
            *operands,
            strides=np.array(self.window.strides, np.int64),
            before=np.array([low for low, _ in self.window.pads], np.int64),
            dilation=np.array(self.window.dilation, np.int64),
            **attributes,
        )


def _convolution_call(name: str, images: Array, taps: Pair, outputs: int, window: Window):
    """The call of a convolution as a function of its operands and further attributes."""
    shape = (len(images), *window.result_size(images.shape[1:3], taps), outputs)
    sizes = (images.shape[3] // window.groups, outputs // window.groups)
    tile = _winograd_tile("convolution", taps, sizes, shape, window)
    call = _Call(name, shape, window)

    def call_with(*operands: Array, **flags: bool) -> Array:
        return call(*operands, groups=np.int64(window.groups), winograd=np.int64(tile), **flags)

    return call_with


def _winograd_tile(
    call: str, taps: Pair, sizes: Pair, result_shape: tuple[int, ...], window: Window
) -> int:
    if not window.allows_winograd:
        return 0
    return winograd_tile(call, (*taps, *sizes), result_shape, window.strides, window.dilation)
