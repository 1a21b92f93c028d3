"""Dense layers and convolutions that compute in 8-bit integers."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Conv, Linear
from jaxcnn.quantize.products import INT8_MAX, Window, chunk_count, convolve, multiply


class QuantizedWeight(nnx.Variable):
    """An array of a quantized layer: its integer weights, their scales or its bias; not trained."""


class Int8Linear(nnx.Module):
    """`nnx.Linear` in 8-bit integers.

    ``output = (int8 input · int8 kernel) · input_scale · kernel_scale + bias``

    Attributes:
      kernel: ``i8[C, D]``.
      kernel_scale: ``f32[D]``, the value of the integer 1 in each output channel.
      input_scale: ``f32[]``, the value of the integer 1 in the input.
      bias: ``f32[D]`` or None.
      chunks: see `products.chunk_count`.
    """

    kernel: QuantizedWeight
    kernel_scale: QuantizedWeight
    input_scale: QuantizedWeight
    bias: QuantizedWeight | None
    chunks: int

    def __init__(self, layer: nnx.Linear, largest_input: float):
        """Quantizes a layer.

        Args:
          layer: in float32.
          largest_input: the absolute value that becomes 127; larger inputs are clipped to it.
        """
        _quantize_weights(self, layer, largest_input)

    def __call__(self, inputs: Array) -> Array:
        """Computes ``f32[…, D]`` from ``f32[…, C]`` or ``bf16[…, C]``."""
        sums = multiply(to_int8(inputs, self.input_scale[...]), self.kernel[...], self.chunks)
        return _dequantize(self, sums)


class Int8Conv(nnx.Module):
    """`nnx.Conv` over images, in 8-bit integers; the kernel is ``i8[h, w, C / groups, D]``.

    Attributes:
      kernel, kernel_scale, input_scale, bias, chunks: see `Int8Linear`.
      window: strides, padding, dilation and groups.
      convolution: the function with which the original layer convolves float32.
    """

    kernel: QuantizedWeight
    kernel_scale: QuantizedWeight
    input_scale: QuantizedWeight
    bias: QuantizedWeight | None
    chunks: int

    def __init__(self, layer: nnx.Conv, largest_input: float):
        """Quantizes a layer; the arguments are those of `Int8Linear`."""
        _quantize_weights(self, layer, largest_input)
        self.window = window_of(layer)
        self.convolution = layer.conv_general_dilated

    def __call__(self, images: Array) -> Array:
        """Computes ``f32[N, H', W', D]`` from ``f32[N, H, W, C]`` or ``bf16[N, H, W, C]``."""
        integers = to_int8(images, self.input_scale[...])
        sums = convolve(integers, self.kernel[...], self.window, self.chunks, self.convolution)
        return _dequantize(self, sums)


def quantize_layer(layer: nnx.Linear | nnx.Conv, largest_input: float) -> Int8Linear | Int8Conv:
    """The layer in 8-bit integers; the arguments are those of `Int8Linear`."""
    if isinstance(layer, nnx.Linear):
        return Int8Linear(layer, largest_input)
    return Int8Conv(layer, largest_input)


def is_quantizable(layer: object) -> bool:
    """Whether a layer is an `nnx.Linear` or a two-dimensional `nnx.Conv`, and computes as these do.

    Fast layers do, see `jaxcnn.accelerate`; other subclasses with a ``__call__`` of their own do
    not. A convolution with a mask, with circular padding or with a dilated input is not
    quantizable.
    """
    if isinstance(layer, nnx.Linear):
        return type(layer).__call__ in (nnx.Linear.__call__, Linear.__call__)
    if not isinstance(layer, nnx.Conv):
        return False
    if type(layer).__call__ not in (nnx.Conv.__call__, Conv.__call__):
        return False
    known_padding = not isinstance(layer.padding, str) or layer.padding in ("SAME", "VALID")
    plain = layer.mask is None and set(_pair(layer.input_dilation)) == {1}
    return len(layer.kernel_size) == 2 and known_padding and plain


def quantization_scale(largest: np.ndarray | float) -> np.ndarray:
    """The value of the integer 1 where 127 is `largest`; 1 where `largest` is 0.

    >>> quantization_scale(254.0).item(), quantization_scale(0.0).item()
    (2.0, 1.0)
    """
    scale = np.asarray(largest, np.float32) / np.float32(INT8_MAX)
    # XLA flushes smaller numbers to zero.
    return np.where(scale >= np.finfo(np.float32).tiny, scale, np.float32(1))


def to_int8(values: Array, scale: Array) -> Array:
    """Rounds ``values / scale`` to the nearest integer, ties to even, and clips to -127 … 127.

    Returns:
      ``i8[…]`` of the shape of `values`.

    >>> to_int8(jnp.array([0.4, -1.3, 1000.0]), jnp.float32(0.5)).tolist()
    [1, -3, 127]
    """
    steps = jnp.round(values.astype(jnp.float32) / scale)
    return jnp.clip(steps, -INT8_MAX, INT8_MAX).astype(jnp.int8)


def window_of(layer: nnx.Conv) -> Window:
    """Strides, padding, dilation and groups of a convolution."""
    padding: Any = layer.padding
    if not isinstance(padding, str):
        padding = tuple(_pair(side) for side in _pair(padding))
    return Window(
        _pair(layer.strides), padding, _pair(layer.kernel_dilation), layer.feature_group_count
    )


def _quantize_weights(
    quantized: Int8Linear | Int8Conv, layer: nnx.Linear | nnx.Conv, largest_input: float
) -> None:
    """Sets the arrays of `quantized` from those of `layer`."""
    kernel = np.asarray(layer.kernel[...], np.float32)
    scale = quantization_scale(np.abs(kernel).reshape(-1, kernel.shape[-1]).max(0))
    integers = np.clip(np.round(kernel / scale), -INT8_MAX, INT8_MAX).astype(np.int8)
    quantized.kernel = QuantizedWeight(jnp.asarray(integers))
    quantized.kernel_scale = QuantizedWeight(jnp.asarray(scale))
    quantized.input_scale = QuantizedWeight(jnp.asarray(quantization_scale(largest_input)))
    if layer.bias is None:
        quantized.bias = nnx.data(None)
    else:
        quantized.bias = QuantizedWeight(layer.bias[...].astype(jnp.float32))
    quantized.chunks = chunk_count(integers)


def _dequantize(layer: Int8Linear | Int8Conv, sums: Array) -> Array:
    outputs = sums.astype(jnp.float32) * (layer.input_scale[...] * layer.kernel_scale[...])
    return outputs if layer.bias is None else outputs + layer.bias[...]


def _pair(sides: int | Sequence | None) -> tuple:
    """Height and width, from any form that Flax accepts: one number for both, or None for 1."""
    sides = 1 if sides is None else sides
    if isinstance(sides, int):
        return sides, sides
    return tuple(sides) * 2 if len(sides) == 1 else tuple(sides)
