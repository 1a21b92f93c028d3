"""The matrix product in four implementations, from a scalar loop to XLA's own.

The rungs are a scalar loop, one output element per program, one tile per program, and XLA. The two
in the middle are written in Pallas, once for every platform: compiled on GPU (through Triton) and
TPU (through Mosaic), interpreted on a CPU, where their speed says nothing about the algorithm. All
are float32 products at the highest precision, so that they do the same arithmetic and can all be
compared with float64.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from experiments.microbenchmarks.kernel import (
    Kernel,
    format_shapes,
    normal_operands,
    size_class,
)

# Sides of the square matrices. An accelerator may take microseconds for each of the n³ iterations
# of the scalar loop. Triton requires powers of 2.
SIZES = {
    "cpu": {"scalar": 64, "element": 64, "tiled": 256, "xla": 256},
    "accelerator": {"scalar": 16, "element": 256, "tiled": 1024, "xla": 1024},
}
# Rows, columns and depth of a tile. Triton keeps a tile in registers, a TPU in megabytes of vector
# memory, where the last axis must be a multiple of 128.
TILES = {"cpu": (64, 64, 64), "gpu": (64, 64, 32), "tpu": (256, 256, 256)}


def kernels(platform: str) -> list[Kernel]:
    """The four rungs, each at a size that takes reasonable time; FLOP/s compare them."""
    sizes = SIZES[size_class(platform)]
    pallas = "pallas, interpreted" if platform == "cpu" else "pallas"
    element = partial(element_per_program, platform=platform)
    tile = partial(tiled, platform=platform)
    return [
        _rung("scalar_loop", sizes["scalar"], scalar_loop, note="one number at a time"),
        _rung("element", sizes["element"], element, pallas, note="one element per program"),
        _rung("tiled", sizes["tiled"], tile, pallas, note="one tile per program"),
        _rung("xla", sizes["xla"], xla, note="the compiler's own"),
    ]


def _rung(
    name: str,
    n: int,
    function: Callable[[Array, Array], Array],
    lowering: str = "xla",
    *,
    note: str,
) -> Kernel:
    shapes = ((n, n), (n, n))
    return Kernel(
        name=f"rung-{name}-{n}-float32",
        group="matrix product, rung by rung",
        shape=format_shapes(*shapes),
        dtype="float32",
        make_operands=normal_operands("float32", *shapes),
        function=function,
        quick=True,
        precision="highest",
        lowering=lowering,
        flops=2 * n**3,
        reference=np.matmul,
        note=note,
    )


def scalar_loop(a: Array, b: Array) -> Array:
    """Nested loops over numbers, one multiply-add per iteration: ``f32[m, k] · f32[k, n]``."""
    (m, depth), n = a.shape, b.shape[1]

    def element(flat: Array, product: Array) -> Array:
        i, j = flat // n, flat % n
        total = lax.fori_loop(
            0, depth, lambda k, total: total + a[i, k] * b[k, j], jnp.zeros((), a.dtype)
        )
        return product.at[i, j].set(total)

    return lax.fori_loop(0, m * n, element, jnp.zeros((m, n), a.dtype))


def element_per_program(a: Array, b: Array, *, platform: str) -> Array:
    """One program per output element, like one CUDA thread per element: ``f32[m, k] · f32[k, n]``.

    A program reads a row of ``a`` and a column of ``b``. Columns are first transposed to rows, and
    every block spans its last two axes, because a TPU supports no other block as thin as one row or
    as small as one element.
    """
    (m, depth), n = a.shape, b.shape[1]
    product = pl.pallas_call(
        _element,
        out_shape=jax.ShapeDtypeStruct((m, n, 1, 1), a.dtype),
        grid=(m, n),
        in_specs=[
            pl.BlockSpec((None, 1, depth), lambda i, j: (i, 0, 0)),
            pl.BlockSpec((None, 1, depth), lambda i, j: (j, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, None, 1, 1), lambda i, j: (i, j, 0, 0)),
        **_pallas_options(platform),
    )
    return product(a[:, None, :], b.T[:, None, :])[:, :, 0, 0]


def _element(row, column, out) -> None:
    out[...] = jnp.sum(row[...] * column[...], axis=1, keepdims=True)


def tiled(a: Array, b: Array, *, platform: str) -> Array:
    """One program per tile of the output, summed over tiles of inputs: ``f32[m, k] · f32[k, n]``.

    Raises:
      ValueError: a size is not a multiple of that of the tile, see `TILES`.
    """
    (m, depth), n = a.shape, b.shape[1]
    rows, columns, step = TILES[platform]
    if m % rows or n % columns or depth % step:
        raise ValueError(
            f"a product of {m}×{depth} and {depth}×{n} cannot be divided into tiles of "
            f"{rows}×{columns}, depth {step}"
        )
    return pl.pallas_call(
        partial(_tile, step=step),
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // rows, n // columns),
        in_specs=[
            pl.BlockSpec((rows, depth), lambda i, j: (i, 0)),
            pl.BlockSpec((depth, columns), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j: (i, j)),
        **_pallas_options(platform),
    )(a, b)


def _tile(a, b, out, *, step: int) -> None:
    def add(k: Array, total: Array) -> Array:
        at = pl.ds(pl.multiple_of(k * step, step), step)
        return total + jnp.dot(
            a[:, at], b[at, :], precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )

    out[...] = lax.fori_loop(0, a.shape[1] // step, add, jnp.zeros(out.shape, jnp.float32))


def _pallas_options(platform: str) -> dict[str, Any]:
    """Options of `pl.pallas_call` for a platform.

    On GPUs Triton must be selected explicitly; JAX 0.12 announces its removal.
    """
    if platform != "gpu":
        return {"interpret": platform == "cpu"}
    from jax.experimental.pallas.triton import CompilerParams

    return {"compiler_params": CompilerParams(num_warps=4, num_stages=2)}


def xla(a: Array, b: Array) -> Array:
    """XLA's own matrix product."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
