"""How the kernel of a convolution is moved over its images."""

from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[int, ...]  # of two numbers, like the slice of a shape
Pads = tuple[tuple[int, int], ...]  # of two pairs


@dataclass(frozen=True)
class Window:
    """How a kernel is moved over images.

    Attributes:
      strides: steps between windows, down and across.
      pads: pixels before and after the rows, and before and after the columns.
      dilation: distances between neighboring taps, down and across.
      groups: of channels, each with a kernel of its own.
      allows_winograd: whether Winograd's method may be used, which has larger rounding errors, and
        columns computed together, which spread a NaN to each other.
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
