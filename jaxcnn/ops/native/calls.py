"""The foreign function calls: convolution, its gradient with respect to the kernel, products.

All arrays are float32. The caller defines derivatives. Under `jax.vmap` the calls are made one
after the other.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.ops.native.loader import CALL_PREFIX
from jaxcnn.ops.native.winograd import winograd_tile

Pair = tuple[int, ...]  # of two numbers, like the slice of a shape
Pads = tuple[tuple[int, int], ...]  # of two pairs


def supports(images: Array, kernel: Array, pads: Pads, dilation: Pair) -> bool:
    """Whether no padding is negative, and the kernel fits into the padded images."""
    axes = zip(images.shape[1:3], kernel.shape[:2], pads, dilation, strict=True)
    return min(map(min, pads)) >= 0 and all(
        size + sum(pad) > (taps - 1) * step for size, taps, pad, step in axes
    )


def convolution(
    images: Array,
    kernel: Array,
    strides: Pair,
    pads: Pads,
    dilation: Pair,
    *,
    flipped: bool = False,
) -> Array:
    """A convolution of operands that it `supports`.

    Args:
      images: ``f32[N, H, W, C]``.
      kernel: ``f32[h, w, C, D]``; ``f32[h, w, D, C]`` if flipped.
      strides: steps between windows, down and across.
      pads: pixels before and after the rows, and before and after the columns.
      dilation: distances between neighboring taps, down and across.
      flipped: rotate the kernel by 180 degrees and exchange its channels first, as in the gradient
        of a convolution with respect to its images.

    Returns:
      ``f32[N, H', W', D]``.
    """
    kernel_shape = (*kernel.shape[:2], *kernel.shape[:1:-1]) if flipped else kernel.shape
    call = _convolution_call("convolution", images, kernel_shape, strides, pads, dilation)
    return call(images, kernel, flipped=flipped)


def conv_relu(
    images: Array, kernel: Array, bias: Array, strides: Pair, pads: Pads, dilation: Pair
) -> Array:
    """``relu(convolution(images, kernel, ...) + bias)``, with a bias ``f32[D]``."""
    call = _convolution_call("conv_relu", images, kernel.shape, strides, pads, dilation)
    return call(images, kernel, bias)


def kernel_gradient(
    images: Array, cotangent: Array, taps: Pair, strides: Pair, pads: Pads, dilation: Pair
) -> Array:
    """The gradient of `convolution` with respect to its kernel.

    Args:
      images: ``f32[N, H, W, C]``.
      cotangent: ``f32[N, H', W', D]``.
      taps: height and width of the kernel, ``h`` and ``w``.
      strides, pads, dilation: those of `convolution`.

    Returns:
      ``f32[h, w, C, D]``.
    """
    shape = (*taps, images.shape[3], cotangent.shape[3])
    tile = winograd_tile("kernel_gradient", shape, cotangent.shape, strides, dilation)
    call = _Call("kernel_gradient", shape, strides, pads, dilation, tile)
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
    strides, pads, dilation = (1, 1), ((0, 0), (0, 0)), (1, 1)
    image = left[None, None]
    if transposed[0]:
        cotangent = (right.T if transposed[1] else right)[None, None]
        return kernel_gradient(image, cotangent, (1, 1), strides, pads, dilation)[0, 0]
    kernel = right[None, None]
    return convolution(image, kernel, strides, pads, dilation, flipped=transposed[1])[0, 0]


@dataclass(frozen=True)
class _Call:
    """A foreign function call.

    Attributes:
      name: a key of `jaxcnn.ops.native.loader.HANDLERS`.
      shape: that of the result.
      strides, pads, dilation: those of `convolution`.
      tile: side of Winograd's tiles; 0 for the direct convolution.
    """

    name: str
    shape: tuple[int, ...]
    strides: Pair
    pads: Pads
    dilation: Pair
    tile: int

    def __call__(self, *operands: Array, **flags: bool) -> Array:
        result = jax.ShapeDtypeStruct(self.shape, jnp.float32)
        call = jax.ffi.ffi_call(CALL_PREFIX + self.name, result, vmap_method="sequential")
        return call(
            *operands,
            strides=np.array(self.strides, np.int64),
            before=np.array([low for low, _ in self.pads], np.int64),
            dilation=np.array(self.dilation, np.int64),
            winograd=np.int64(self.tile),
            **flags,
        )


def _convolution_call(
    name: str,
    images: Array,
    kernel_shape: tuple[int, ...],
    strides: Pair,
    pads: Pads,
    dilation: Pair,
) -> _Call:
    """The call of a convolution with a kernel ``[h, w, C, D]``."""
    axes = zip(images.shape[1:3], kernel_shape[:2], strides, pads, dilation, strict=True)
    rows, columns = (
        (size + sum(pad) - (taps - 1) * step - 1) // stride + 1
        for size, taps, stride, pad, step in axes
    )
    shape = (len(images), rows, columns, kernel_shape[3])
    tile = winograd_tile("convolution", kernel_shape, shape, strides, dilation)
    return _Call(name, shape, strides, pads, dilation, tile)
