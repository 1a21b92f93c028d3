"""When Winograd's minimal filtering is used, by hand-worked costs, and its results by hand."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn import ops
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.ops.native import winograd_tile


@dataclass(frozen=True)
class Choice:
    """A convolution or its kernel gradient, and the tile that costs the fewest multiplications."""

    tile: int
    call: str = "convolution"
    kernel: tuple[int, int, int, int] = (3, 3, 16, 16)
    result: tuple[int, int, int, int] = (60, 12, 12, 16)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)


# Multiplications per pair of channels; the transform of the kernel counts as 100 tiles, or 16 for
# the kernel gradient. The limit is 0.9, or 0.6 for the kernel gradient, of the direct convolution.
CHOICES = [
    # 16 * (400 + 100) = 8,000 or 36 * (144 + 100) = 8,784; the limit is 0.9 * 14,400
    Choice(tile=2, result=(16, 10, 10, 16)),
    # 16 * (2160 + 100) = 36,160 or 36 * (540 + 100) = 23,040; the limit is 0.9 * 77,760
    Choice(tile=4),
    Choice(tile=0, kernel=(3, 3, 15, 16)),  # too few channels
    # 16 * (48 + 100) = 2,368 is above 0.9 * 1,728
    Choice(tile=0, result=(3, 8, 8, 16)),
    # 36 * (12 + 16) = 1,008 is below 0.6 * 1,728
    Choice(tile=4, call="kernel_gradient", result=(3, 8, 8, 16)),
    # 16 * (810 + 16) = 13,216 and 36 * (360 + 16) = 13,536 are above 0.6 * 20,250
    Choice(tile=0, call="kernel_gradient", result=(90, 5, 5, 16)),
    Choice(tile=0, strides=(2, 1)),
    Choice(tile=0, dilation=(1, 2)),
    Choice(tile=0, kernel=(3, 5, 16, 16)),
    Choice(tile=2, kernel=(5, 5, 16, 16)),
    # 36 * (36 + 100) = 4,896 is above 0.9 * 3,600
    Choice(tile=0, kernel=(5, 5, 16, 16), result=(1, 12, 12, 16)),
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_tile_with_the_fewest_multiplications_is_chosen(choice):
    tile = winograd_tile(choice.call, choice.kernel, choice.result, choice.strides, choice.dilation)
    assert tile == choice.tile


@pytest.mark.parametrize(("images", "tile"), [((99, 4, 4, 32), 4), ((99, 2, 6, 32), 2)])
def test_a_convolution_of_ones_counts_the_taps_inside_the_image(images, tile):
    """Nine taps in the middle, six at a side, four in a corner, times 32 channels."""
    ones, kernel = jnp.ones(images), jnp.ones((3, 3, 32, 16))
    result_shape = (*images[:3], 16)
    assert winograd_tile("convolution", kernel.shape, result_shape, (1, 1), (1, 1)) == tile
    result = ops.conv_general_dilated(ones, kernel, (1, 1), "SAME", dimension_numbers=NHWC)
    taps = [[min(size, at + 2) - max(0, at - 1) for at in range(size)] for size in images[1:3]]
    np.testing.assert_allclose(result[7, :, :, 3], 32 * np.outer(*taps), rtol=1e-5)
