"""The static arguments of a convolution, for all of its lowerings and gradients."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from jax import lax

Sizes = tuple[int, ...]  # a number for each image axis
Pads = tuple[tuple[int, int], ...]  # numbers before and after, for each image axis

# Images [N, H, W, C], kernel [h, w, C, D], result [N, H', W', D].
NHWC = lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))


@dataclass(frozen=True)
class ConvSpec:
    """Everything about a convolution except its operands.

    Attributes:
      strides: steps between windows, along each image axis.
      pads: pixels before and after the image, along each axis. A negative number crops.
      dilation: distances between neighboring taps; 1 means adjacent.
      image_size: pixels of the images, such as height and width.
      kernel_size: taps.
      groups: number of groups of channels, as ``feature_group_count`` of `jax.lax`.
      precision: as in `jax.lax.conv_general_dilated`.
    """

    strides: Sizes
    pads: Pads
    dilation: Sizes
    image_size: Sizes
    kernel_size: Sizes
    groups: int
    precision: lax.PrecisionLike

    @property
    def allows_winograd(self) -> bool:
        """Whether Winograd's method may be used, whose rounding errors are larger."""
        precisions = self.precision if isinstance(self.precision, tuple) else (self.precision,)
        return lax.Precision.HIGHEST not in precisions

    @property
    def crops(self) -> tuple[int, ...]:
        """Pixels in front of the images, along each axis, that negative padding removes."""
        return tuple(max(0, -low) for low, _ in self.pads)

    def for_cropped_images(self) -> "ConvSpec":
        """The same convolution of images without the pixels that `crops` counts."""
        sizes = zip(self.image_size, self.crops, strict=True)
        return dataclasses.replace(
            self,
            pads=tuple((max(0, low), high) for low, high in self.pads),
            image_size=tuple(size - crop for size, crop in sizes),
        )

    @property
    def is_dense_layer(self) -> bool:
        """Whether every output is a weighted sum of a whole image."""
        is_whole = self.kernel_size == self.image_size and not any(map(any, self.pads))
        return is_whole and set(self.dilation) == {1} and self.groups == 1

    @property
    def spans(self) -> tuple[int, ...]:
        """Pixels from a window's first tap to its last, both included."""
        return _spans(self.kernel_size, self.dilation)


def conv_spec(
    image_size: Sequence[int],
    kernel_size: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dilation: Sequence[int] | None = None,
    groups: int = 1,
    precision: lax.PrecisionLike = None,
) -> ConvSpec:
    """The spec of a convolution of such images; named paddings become numbers of pixels."""
    dilation = dilation or (1,) * len(kernel_size)
    if isinstance(padding, str):
        spans = _spans(kernel_size, dilation)
        padding = lax.padtype_to_pads(image_size, spans, strides, padding)
    return ConvSpec(
        strides=tuple(strides),
        pads=tuple((int(low), int(high)) for low, high in padding),
        dilation=tuple(dilation),
        image_size=tuple(image_size),
        kernel_size=tuple(kernel_size),
        groups=groups,
        precision=precision,
    )


def _spans(kernel_size: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    return tuple((taps - 1) * step + 1 for taps, step in zip(kernel_size, dilation, strict=True))
