"""The static arguments of a convolution, for all of its lowerings and gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax import Array, lax

Pair = tuple[int, ...]  # of two numbers, like the slice of a shape
Pads = tuple[tuple[int, int], ...]  # of two pairs

# Images [N, H, W, C], kernel [h, w, C, D], result [N, H', W', D].
NHWC = lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))


@dataclass(frozen=True)
class ConvSpec:
    """Everything about a convolution except its operands.

    Attributes:
      strides: steps between windows, down and across.
      pads: pixels before and after the rows, and before and after the columns. A negative number
        crops.
      dilation: distances between neighboring taps, down and across; 1 means adjacent.
      image_size: height and width of the images.
      kernel_size: taps down and across.
      groups: number of groups of channels, as ``feature_group_count`` of `jax.lax`.
      precision: as in `jax.lax.conv_general_dilated`.
    """

    strides: Pair
    pads: Pads
    dilation: Pair
    image_size: Pair
    kernel_size: Pair
    groups: int
    precision: lax.PrecisionLike

    @property
    def spans(self) -> tuple[int, ...]:
        """Pixels from a window's first tap to its last, both included, down and across."""
        return _spans(self.kernel_size, self.dilation)


def conv_spec(
    images: Array,
    kernel: Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    precision: lax.PrecisionLike = None,
) -> ConvSpec:
    """The spec of a convolution of these operands; named paddings become numbers of pixels."""
    image_size, kernel_size = images.shape[1:3], kernel.shape[:2]
    if isinstance(padding, str):
        spans = _spans(kernel_size, dilation)
        padding = lax.padtype_to_pads(image_size, spans, strides, padding)
    return ConvSpec(
        strides=tuple(strides),
        pads=tuple((int(low), int(high)) for low, high in padding),
        dilation=tuple(dilation),
        image_size=image_size,
        kernel_size=kernel_size,
        groups=groups,
        precision=precision,
    )


def _spans(kernel_size: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    return tuple((taps - 1) * step + 1 for taps, step in zip(kernel_size, dilation, strict=True))
