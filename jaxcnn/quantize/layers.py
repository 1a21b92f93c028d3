"""Dense layers and convolutions in 8-bit integers."""

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from jaxcnn.quantize.products import LARGEST, Window, convolve, multiply, pieces


class Integers(nnx.Variable):
    """Weights as integers, their scales, and biases: not trained."""


class Int8Linear(nnx.Module):
    """`nnx.Linear` in 8-bit integers.

    ``output = sum(integers of the input · kernel) · input_scale · kernel_scale + bias``

    Attributes:
      kernel: ``i8[C, D]``.
      kernel_scale: ``f32[D]``, what 1 stands for in each output channel.
      input_scale: ``f32[]``, what 1 stands for in the input.
      bias: ``f32[D]`` or None.
      pieces: see `products.pieces`.
    """

    def __init__(self, layer: nnx.Linear, largest: float):
        """Takes a layer's weights, and the largest input that is told from larger ones."""
        _take(self, layer, largest)

    def __call__(self, inputs: Array) -> Array:
        """``f32[…, C]`` to ``f32[…, D]``; bfloat16 is taken too."""
        sums = multiply(to_integers(inputs, self.input_scale[...]), self.kernel[...], self.pieces)
        return _to_floats(self, sums)


class Int8Conv(nnx.Module):
    """`nnx.Conv` over images, in 8-bit integers; the kernel is ``i8[h, w, C / groups, D]``.

    Attributes:
      kernel, kernel_scale, input_scale, bias, pieces: as those of `Int8Linear`.
      window: how the kernel moves.
      convolution: the layer's own, for float32.
    """

    def __init__(self, layer: nnx.Conv, largest: float):
        """Takes a layer's weights, and the largest input that is told from larger ones."""
        _take(self, layer, largest)
        self.window = window_of(layer)
        self.convolution = layer.conv_general_dilated

    def __call__(self, images: Array) -> Array:
        """``f32[N, H, W, C]`` to ``f32[N, H', W', D]``; bfloat16 is taken too."""
        integers = to_integers(images, self.input_scale[...])
        return _to_floats(
            self, convolve(integers, self.kernel[...], self.window, self.pieces, self.convolution)
        )


def layer_in_integers(layer: nnx.Linear | nnx.Conv, largest: float) -> Int8Linear | Int8Conv:
    """The layer in integers, see `Int8Linear`."""
    return Int8Linear(layer, largest) if isinstance(layer, nnx.Linear) else Int8Conv(layer, largest)


def can_be_integers(layer: object) -> bool:
    """Whether a layer is dense or a convolution over images, and computes what Flax's class says and nothing else.

    A class with a `__call__` of its own that does so says it by a true attribute ``computes_as_flax``.
    """
    if isinstance(layer, nnx.Linear):
        return type(layer).__call__ is nnx.Linear.__call__
    same = type(layer).__call__ is nnx.Conv.__call__ or getattr(
        type(layer), "computes_as_flax", False
    )
    if not isinstance(layer, nnx.Conv) or not same:
        return False
    known_padding = not isinstance(layer.padding, str) or layer.padding in ("SAME", "VALID")
    plain = layer.mask is None and set(_both(layer.input_dilation)) == {1}
    return len(layer.kernel_size) == 2 and known_padding and plain


def scale_of(largest: np.ndarray | float) -> np.ndarray:
    """What 1 stands for where 127 stands for the largest value; 1 where all values are 0, which any scale would do for.

    >>> scale_of(254.0).item(), scale_of(0.0).item()
    (2.0, 1.0)
    """
    scale = np.asarray(largest, np.float32) / np.float32(LARGEST)
    return np.where(
        scale >= np.finfo(np.float32).tiny, scale, np.float32(1)
    )  # XLA takes smaller numbers for 0


def to_integers(values: Array, scale: Array) -> Array:
    """The nearest integers from -127 to 127, of two equally near the even one: ``i8[…]``; what is larger becomes 127.

    >>> to_integers(jnp.array([0.4, -1.3, 1000.0]), jnp.float32(0.5)).tolist()
    [1, -3, 127]
    """
    steps = jnp.round(values.astype(jnp.float32) / scale)
    return jnp.clip(steps, -LARGEST, LARGEST).astype(jnp.int8)


def window_of(layer: nnx.Conv) -> Window:
    """How a layer's kernel moves."""
    padding = layer.padding
    if not isinstance(padding, str):
        padding = tuple(_both(side) for side in _both(padding))
    return Window(
        _both(layer.strides), padding, _both(layer.kernel_dilation), layer.feature_group_count
    )


def _take(new: Int8Linear | Int8Conv, layer: nnx.Linear | nnx.Conv, largest: float) -> None:
    kernel = np.asarray(layer.kernel[...], np.float32)
    scale = scale_of(np.abs(kernel).reshape(-1, kernel.shape[-1]).max(0))
    integers = np.clip(np.round(kernel / scale), -LARGEST, LARGEST).astype(np.int8)
    new.kernel = Integers(jnp.asarray(integers))
    new.kernel_scale = Integers(jnp.asarray(scale))
    new.input_scale = Integers(jnp.asarray(scale_of(largest)))
    new.bias = (
        nnx.data(None) if layer.bias is None else Integers(layer.bias[...].astype(jnp.float32))
    )
    new.pieces = pieces(integers)


def _to_floats(layer: Int8Linear | Int8Conv, sums: Array) -> Array:
    outputs = sums.astype(jnp.float32) * (layer.input_scale[...] * layer.kernel_scale[...])
    return outputs if layer.bias is None else outputs + layer.bias[...]


def _both(sides: int | tuple | list | None) -> tuple:
    """Of height and width; Flax takes one number for both, and None for 1."""
    sides = 1 if sides is None else sides
    return (
        (sides, sides) if isinstance(sides, int) else tuple(sides) * (2 if len(sides) == 1 else 1)
    )
