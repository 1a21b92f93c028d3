"""The foreign function calls: convolutions, their gradients with respect to the kernel, products.

Arrays are float32, and those of convolutions without groups and of products may be bfloat16 where
`can_compute_bfloat16` says so; sums are in float32. The caller defines derivatives. Under
`jax.vmap` the calls are made one after the other. A mismatch of shapes is an error of the call,
with the shapes that are expected.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jaxcnn.ops.native.activation import Activation
from jaxcnn.ops.native.loader import (
    BFLOAT16_INSTRUCTIONS,
    CALL_PREFIX,
    available,
    bfloat16_instructions,
)
from jaxcnn.ops.native.window import Pair, Window
from jaxcnn.ops.native.winograd import winograd_tile

Attribute = bool | np.int64 | np.float32 | np.ndarray  # of a call


def can_compute(*operands: Array | jax.ShapeDtypeStruct) -> bool:
    """Whether kernels may be called in the current context for such operands, in float32.

    That is for float32 and for half precisions, which are converted, but not for empty arrays.
    """
    dtypes = (jnp.float32, jnp.bfloat16, jnp.float16)
    return available() and all(each.dtype in dtypes and each.size > 0 for each in operands)


def can_compute_bfloat16(*operands: Array | jax.ShapeDtypeStruct) -> bool:
    """Whether all operands are bfloat16, and the kernels use instructions for it in this context.

    The kernels for bfloat16 know no groups. They read numbers below 1.2e-38 as zero.
    """
    are_bfloat16 = all(each.dtype == jnp.bfloat16 for each in operands)
    return are_bfloat16 and can_compute(*operands) and bfloat16_instructions() is not None


def convolution(images: Array, kernel: Array, window: Window, *, flipped: bool = False) -> Array:
    """A convolution whose window `fits`.

    Args:
      images: ``[N, H, W, C]``.
      kernel: ``[h, w, C / groups, D]``; ``[h, w, D / groups, C]`` if flipped.
      window: see `Window`.
      flipped: rotate the kernel by 180 degrees and exchange its channels first, as in the gradient
        of a convolution with respect to its images.

    Returns:
      ``[N, H', W', D]``.
    """
    outputs = kernel.shape[2] * window.groups if flipped else kernel.shape[3]
    call = _convolution_call("convolution", images, kernel.shape[:2], outputs, window)
    return call(images, kernel, flipped=flipped)


def activated_convolution(
    images: Array,
    kernel: Array,
    factors: Array,
    bias: Array,
    window: Window,
    activation: Activation,
    summand: Array | None = None,
) -> Array:
    """``activation(convolution(images, kernel, window) * factors + bias + summand)``.

    Args:
      images, kernel, window: as for `convolution`.
      factors, bias: ``f32[D]``.
      activation: of the result.
      summand: ``f32[N, H', W', D]``; not with bfloat16.
    """
    name = "activated_convolution"
    call = _convolution_call(name, images, kernel.shape[:2], kernel.shape[3], window)
    operands = [images, kernel, factors, bias]
    if images.dtype != jnp.bfloat16:
        operands.append(no_summand() if summand is None else summand)
    return call(*operands, **activation.attributes())


def no_summand() -> Array:
    """The operand of a call that adds nothing."""
    return jnp.zeros((0, 0, 0, 0), jnp.float32)


def kernel_gradient(images: Array, cotangent: Array, taps: Pair, window: Window) -> Array:
    """The gradient of `convolution` with respect to its kernel.

    Args:
      images: ``[N, H, W, C]``.
      cotangent: ``[N, H', W', D]``.
      taps: height and width of the kernel, ``h`` and ``w``.
      window: that of `convolution`.

    Returns:
      ``[h, w, C / groups, D]``.
    """
    channels, outputs = images.shape[3] // window.groups, cotangent.shape[3]
    if images.dtype == jnp.bfloat16:
        call = Call("kernel_gradient", (*taps, channels, outputs), window, images.dtype)
        return call(images, cotangent)
    sizes = (channels, outputs // window.groups)
    tile = 0  # with groups, sums over few channels hide less of Winograd's rounding errors
    if window.groups == 1:
        tile = winograd_side("kernel_gradient", taps, sizes, cotangent.shape, window)
    call = Call("kernel_gradient", (*taps, channels, outputs), window)
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
    call = Call("depthwise", (len(images), *size, images.shape[3]), window)
    return call(images, kernel, transposed=False)


def activated_depthwise(
    images: Array,
    kernel: Array,
    factors: Array,
    bias: Array,
    window: Window,
    activation: Activation,
    summand: Array | None = None,
) -> Array:
    """``activation(depthwise(images, kernel, window) * factors + bias + summand)``."""
    size = window.result_size(images.shape[1:3], kernel.shape[:2])
    call = Call("activated_depthwise", (len(images), *size, images.shape[3]), window)
    summand = no_summand() if summand is None else summand
    return call(images, kernel, factors, bias, summand, **activation.attributes())


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
    call = Call("depthwise", (len(cotangent), *image_size, cotangent.shape[3]), window)
    return call(cotangent, kernel, transposed=True)


def depthwise_kernel_gradient(images: Array, cotangent: Array, taps: Pair, window: Window) -> Array:
    """The gradient ``f32[h, w, 1, C]`` of `depthwise` with respect to its kernel."""
    call = Call("depthwise_gradient", (*taps, 1, images.shape[3]), window)
    return call(images, cotangent)


def product(left: Array, right: Array, *, transposed: tuple[bool, bool] = (False, False)) -> Array:
    """The matrix product ``left @ right``, as a convolution of images one pixel high.

    Args:
      left: ``[M, K]``; ``[K, M]`` if transposed.
      right: ``[K, N]``; ``[N, K]`` if transposed.
      transposed: whether ``left`` and ``right`` are transposed before the product.

    Returns:
      ``[M, N]``.
    """
    image = left[None, None]
    if transposed[0]:
        cotangent = (right.T if transposed[1] else right)[None, None]
        return kernel_gradient(image, cotangent, (1, 1), Window())[0, 0]
    return convolution(image, right[None, None], Window(), flipped=transposed[1])[0, 0]


@dataclass(frozen=True)
class Call:
    """A foreign function call.

    Attributes:
      name: a key of `jaxcnn.ops.native.loader.HANDLERS`.
      shape: that of the result.
      window: of the convolution.
      dtype: of the operands and the result, float32 or bfloat16.
    """

    name: str
    shape: tuple[int, ...]
    window: Window
    dtype: DTypeLike = jnp.float32

    def __call__(self, *operands: Array, **attributes: Attribute) -> Array:
        name = self.name
        if self.dtype == jnp.bfloat16:
            name = "bfloat16_" + name
            number = BFLOAT16_INSTRUCTIONS.index(bfloat16_instructions() or "") + 1
            attributes["instructions"] = np.int64(number)
        result = jax.ShapeDtypeStruct(self.shape, self.dtype)
        call = jax.ffi.ffi_call(CALL_PREFIX + name, result, vmap_method="sequential")
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
    if images.dtype == jnp.bfloat16:
        return Call(name, shape, window, images.dtype)
    sizes = (images.shape[3] // window.groups, outputs // window.groups)
    tile = winograd_side("convolution", taps, sizes, shape, window)
    call = Call(name, shape, window)

    def call_with(*operands: Array, **others: Attribute) -> Array:
        return call(*operands, groups=np.int64(window.groups), winograd=np.int64(tile), **others)

    return call_with


def winograd_side(
    call: str, taps: Pair, sizes: Pair, result_shape: tuple[int, ...], window: Window
) -> int:
    """The side of Winograd's tiles; 1 for the direct convolution, 0 for it as defined."""
    if not window.allows_winograd:
        return 0
    tile = winograd_tile(call, (*taps, *sizes), result_shape, window.strides, window.dilation)
    return tile or 1
