"""Kernels that are laid out for a convolution once, and convolutions with them, in float32."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.ops.native.activation import NO_ACTIVATION, Activation
from jaxcnn.ops.native.calls import Call, no_summand, winograd_side
from jaxcnn.ops.native.loader import instruction_set, load_library
from jaxcnn.ops.native.window import Window

_Numbers = ctypes.POINTER(ctypes.c_int64)


@dataclass(frozen=True)
class PackedConvolution:
    """A convolution without groups whose window `fits`, and whose kernel is packed.

    Attributes:
      images: ``[N, H, W, C]``.
      kernel: ``[h, w, C, D]``.
      window: see `Window`.
    """

    images: tuple[int, ...]
    kernel: tuple[int, ...]
    window: Window

    @property
    def result(self) -> tuple[int, ...]:
        """``[N, H', W', D]``."""
        size = self.window.result_size(self.images[1:3], self.kernel[:2])
        return (self.images[0], *size, self.kernel[3])

    def pack(self, kernel: Array) -> Array:
        """The kernel ``f32[h, w, C, D]`` as this convolution reads it, ``f32[size]``."""
        call = Call("pack_kernel", (self._size(),), self.window)
        return call(
            kernel,
            images=_integers(self.images),
            result=_integers(self.result),
            winograd=np.int64(self._tile()),
        )

    def __call__(
        self,
        images: Array,
        packed: Array,
        factors: Array | None = None,
        bias: Array | None = None,
        activation: Activation = NO_ACTIVATION,
        summand: Array | None = None,
    ) -> Array:
        """The convolution, and what follows it if there are factors.

        Args:
          images: ``f32[N, H, W, C]``.
          packed: of `pack`.
          factors, bias, activation, summand: see `activated_convolution`. Without factors there is
            none of them.
        """
        nothing = jnp.zeros(0, jnp.float32)
        call = Call("packed_convolution", self.result, self.window)
        return call(
            images,
            packed,
            nothing if factors is None else factors,
            nothing if bias is None else bias,
            no_summand() if summand is None else summand,
            kernel=_integers(self.kernel),
            winograd=np.int64(self._tile()),
            **activation.attributes(),
        )

    def _tile(self) -> int:
        return winograd_side(
            "packed_convolution", self.kernel[:2], self.kernel[2:], self.result, self.window
        )

    def _size(self) -> int:
        library = load_library(instruction_set() or "")
        assert library is not None  # the caller asked `available`
        function = library.JaxcnnPackedSize
        function.argtypes, function.restype = [_Numbers] * 6 + [ctypes.c_int64], ctypes.c_int64
        before = [low for low, _ in self.window.pads]
        shapes = (self.images, self.result, self.kernel)
        pairs = (self.window.strides, before, self.window.dilation)
        return function(*map(_pointer, (*shapes, *pairs)), self._tile())


def _integers(numbers: Sequence[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _pointer(numbers: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int64 * len(numbers))(*numbers)
