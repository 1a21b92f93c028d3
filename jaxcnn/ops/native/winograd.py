"""The cost model that chooses between Winograd's minimal filtering and the direct convolution.

Costs are multiplications per pair of an input and an output channel. The direct convolution takes
one per tap and result pixel. A tile of T x T result pixels under t x t taps takes
``(T + t - 1) ** 2`` (Lavin & Gray 2016, *Fast Algorithms for Convolutional Neural Networks*,
section 4). The transform of the kernel is added as a number of tiles.
"""

from jaxcnn.ops.native.window import Pair

# Result pixels, for each kernel size.
TILE_SIDES: dict[Pair, tuple[int, ...]] = {(3, 3): (2, 4), (5, 5): (2,)}
MIN_CHANNELS = 16  # of the images and of the result; for fewer, the transforms cost too much
# Tiles that take as long as the transform of the kernel or, of a packed one, as reading it.
KERNEL_TILES = {"convolution": 100, "packed_convolution": 20, "kernel_gradient": 16}
# Of the direct convolution's cost.
MAX_COST_RATIO = {"convolution": 0.9, "packed_convolution": 0.9, "kernel_gradient": 0.6}


def winograd_tile(
    call: str,
    kernel_shape: tuple[int, ...],
    result_shape: tuple[int, ...],
    strides: Pair,
    dilation: Pair,
) -> int:
    """The side of the tiles with which Winograd's method takes the fewest multiplications.

    Args:
      call: a key of `KERNEL_TILES`.
      kernel_shape: ``[h, w, C, D]``.
      result_shape: that of the convolution's result, ``[N, H', W', D]``, for all calls.
      strides, dilation: of the convolution, down and across.

    Returns:
      The side in pixels; 0 if the direct convolution is as good, or the only one that applies.

    >>> winograd_tile("convolution", (3, 3, 64, 64), (64, 32, 32, 64), (1, 1), (1, 1))
    4
    """
    examples, rows, columns, _ = result_shape
    taps = kernel_shape[:2]
    if (*strides, *dilation) != (1, 1, 1, 1) or min(kernel_shape[2:]) < MIN_CHANNELS:
        return 0

    def cost(tile: int) -> int:
        tiles = examples * -(-rows // tile) * -(-columns // tile) + KERNEL_TILES[call]
        return (tile + taps[0] - 1) ** 2 * tiles

    tile = min(TILE_SIDES.get(taps, ()), key=cost, default=0)
    limit = MAX_COST_RATIO[call] * taps[0] * taps[1] * examples * rows * columns
    return tile if tile and cost(tile) <= limit else 0
