"""Convolutions and matrix products by oneDNN, the library that PyTorch and TensorFlow call on a CPU.

It lies in jaxlib for Linux on x86, and XLA:CPU runs it where a program says ``__onednn$convolution`` or ``__onednn$matmul``, whether
or not its own passes put the call there (jax 0.10 has the calls without the passes; 0.12 has both, behind an experimental
option). The calls are not part of XLA's promises: `available` tries them before anything relies on them.

Programs that hold such calls compile as ever but cannot be kept in JAX's persistent compilation cache, and the compiler cannot divide
a call between devices: it would give each the whole batch.
"""

import contextlib
import functools
import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Pairs = tuple[tuple[int, int], ...]

CALLS = "__onednn$"  # the beginning of their names, as in a program's text
EXAMPLES = 16  # fewer are cut into strips

_left_out: ContextVar[bool] = ContextVar("left_out", default=False)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """What is traced within calls no oneDNN: for programs over several devices, for export, and for the compiler's own counts."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


def available() -> bool:
    """Whether programs traced here may call it."""
    return not _left_out.get() and _works()


def takes(images: Array, kernel: Array, pads: Pairs, dilation: tuple[int, int]) -> bool:
    """Whether no side is padded by less than nothing, and the kernel fits into the images."""
    sides = zip(images.shape[1:3], kernel.shape[:2], pads, dilation, strict=True)
    return min(map(min, pads)) >= 0 and all(size + sum(pad) > (count - 1) * step for size, count, pad, step in sides)


def convolution(
    images: Array, kernel: Array, strides: tuple[int, int], pads: Pairs, dilation: tuple[int, int], bias: Array | None = None
) -> Array:
    """``f32[N, H, W, C]`` with ``f32[h, w, C, D]`` to ``f32[N, H', W', D]``; with a bias ``f32[D]``, plus that and its negatives zero.

    Only of what it `takes`. Reverse mode is the caller's to define; under `jax.vmap` one is computed after the other.
    """
    taps = {"input_feature_dim": "2", "output_feature_dim": "3", "spatial_dims": ["0", "1"]}
    shape = _places(images.shape[1:3], kernel.shape[:2], strides, pads, dilation)
    return _convolution(images, kernel, taps, (len(images), *shape, kernel.shape[3]), strides, pads, dilation, bias)


def kernel_gradient(images: Array, cotangent: Array, taps: tuple[int, int], strides, pads: Pairs, dilation) -> Array:
    """The gradient of `convolution` by its kernel: ``f32[N, H, W, C]`` with ``f32[N, H', W', D]`` to ``f32[h, w, C, D]``.

    A convolution of three dimensions whose one image is ``[1, H, W, C]``, the channels being its third dimension and the examples its
    channels, and whose kernel is the cotangent, ``[H', W', 1]`` taps from N channels to D. So the matrices that are multiplied
    have a row a channel; with channels as examples they would have a row a tap, of which there are few.
    """
    images, pads, cotangent = _in_strips(images, cotangent, taps[0], strides[0], pads, dilation[0])
    around = tuple(
        (low, (count - 1) * step + (places - 1) * stride + 1 - size - low)
        for size, count, step, places, stride, (low, _) in zip(
            images.shape[1:3], taps, dilation, cotangent.shape[1:3], strides, pads, strict=True
        )
    )  # what the last window leaves of the image is cut off, by padding less than nothing
    cut = tuple(slice(0, size + min(0, high)) for size, (_, high) in zip(images.shape[1:3], around, strict=True))
    image = jnp.transpose(images[:, *cut], (1, 2, 3, 0))[None]
    around = (*((low, max(0, high)) for low, high in around), (0, 0))
    roles = {"input_feature_dim": "0", "output_feature_dim": "3", "spatial_dims": ["1", "2", "4"]}
    shape = (1, *taps, images.shape[3], cotangent.shape[3])
    return _convolution(image, cotangent[..., None], roles, shape, (*dilation, 1), around, (*strides, 1))[0]


def _in_strips(images: Array, cotangent: Array, taps: int, stride: int, pads: Pairs, dilation: int) -> tuple[Array, Pairs, Array]:
    """Few examples as more of them, strips of rows with what the windows reach beyond: a product over 4 examples is a thin one."""
    strips, rows = 1, cotangent.shape[1]
    while len(images) * strips < EXAMPLES and rows % (2 * strips) == 0:
        strips *= 2
    if strips == 1:
        return images, pads, cotangent
    high = rows // strips
    reach = (high - 1) * stride + (taps - 1) * dilation + 1
    padded = jnp.pad(images, ((0, 0), pads[0], (0, 0), (0, 0)))
    cut = [lax.slice_in_dim(padded, start, start + reach, axis=1) for start in range(0, rows * stride, high * stride)]
    images = jnp.stack(cut, 1).reshape(-1, reach, *images.shape[2:])
    return images, ((0, 0), pads[1]), cotangent.reshape(-1, high, *cotangent.shape[2:])


def _places(sizes, taps, strides, pads, dilation) -> tuple[int, ...]:
    return tuple(
        (size + sum(pad) - (count - 1) * step - 1) // stride + 1
        for size, count, stride, pad, step in zip(sizes, taps, strides, pads, dilation, strict=True)
    )


def _convolution(
    images: Array,
    kernel: Array,
    roles: dict[str, Any],
    shape: tuple[int, ...],
    strides,
    pads,
    dilation,
    bias: Array | None = None,
) -> Array:
    """Images ``[N, …, C]``; which axis of the kernel is which say the roles."""
    spatial = _words(range(1, images.ndim - 1))
    image = {"data": {"batch_dim": "0", "feature_dim": str(images.ndim - 1), "spatial_dims": spatial}, "dims": "0"}
    window = {
        "pad_left": _words(low for low, _ in pads), "pad_right": _words(high for _, high in pads), "size": [],
        "strides": _words(strides), "window_dilations": _words(dilation),
    }  # fmt: skip
    config = {
        "dims": str(images.ndim), "feature_groups": "1", "input": image, "output": image, "window": window,
        "kernel": {"dims": "0", "filter": {"shape": _words(kernel.shape)} | roles}, "optimization_config": _PLAIN,
    }  # fmt: skip
    if bias is None:
        return _call("convolution", "onednn_conv_config", config, shape, images, kernel)
    config |= {"fusions": {"alpha": [], "ops": ["BIAS", "RELU"]}, "optimization_config": _PLAIN | {"bias_broadcast": True}}
    return _call("convolution", "onednn_conv_config", config, shape, images, kernel, bias)


def product(left: Array, right: Array, *, transposed: tuple[bool, bool] = (False, False)) -> Array:
    """``f32[M, K]``, or transposed ``f32[K, M]``, times ``f32[K, N]``, or transposed ``f32[N, K]``."""
    config = {"transpose_a": transposed[0], "transpose_b": transposed[1], "optimization_config": _PLAIN}
    shape = (left.shape[1 if transposed[0] else 0], right.shape[0 if transposed[1] else 1])
    return _call("matmul", "onednn_matmul_config", config, shape, left, right)


_PLAIN = {"bias_broadcast": False, "user_scratchpad": False, "weights_prepacked": False}


def _words(numbers) -> list[str]:
    return [str(int(number)) for number in numbers]


def _call(target: str, name: str, config: dict[str, Any], shape: tuple[int, ...], *operands: Array) -> Array:
    call = jax.ffi.ffi_call(
        CALLS + target,
        jax.ShapeDtypeStruct(shape, jnp.float32),
        vmap_method="sequential",
        custom_call_api_version=2,
        legacy_backend_config=json.dumps({name: config, "outer_dimension_partitions": []}),
    )
    return call(*operands)


@functools.cache
def _works() -> bool:
    """Whether this jaxlib runs the calls and gives what they should, on numbers that are exact."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # the process has other platforms alone
        return False
    images = np.arange(2 * 5 * 6 * 3, dtype=np.float32).reshape(2, 5, 6, 3)
    kernel = np.arange(2 * 3 * 3 * 4, dtype=np.float32).reshape(2, 3, 3, 4) - 30
    bias = np.arange(4, dtype=np.float32)
    strides, pads, dilation = (2, 1), ((1, 0), (2, 1)), (1, 2)

    def tried(images, kernel):
        return convolution(images, kernel, strides, pads, dilation, bias), product(images[0, 0], kernel[0, 0])

    def known(images, kernel):
        numbers = jax.lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
        folded = jax.lax.conv_general_dilated(images, kernel, strides, pads, None, dilation, numbers)
        return jnp.maximum(folded + bias, 0), images[0, 0] @ kernel[0, 0]

    try:
        with jax.default_device(device), jax.ensure_compile_time_eval():
            return all(map(np.array_equal, jax.jit(tried)(images, kernel), jax.jit(known)(images, kernel)))
    except jax.errors.JaxRuntimeError:
        return False
