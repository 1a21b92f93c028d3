"""The matrix product rung by rung (system E1): a scalar loop, one output element per program, tiles, and XLA's own.

The two in the middle are written in Pallas, once for every platform: run on GPU (through Triton) and TPU (through Mosaic), interpreted
on a CPU, where their speed says nothing of the algorithm. All are float32 products at the highest precision, so that they do the same
arithmetic and can be held against float64 alike.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times

# Sides of the square matrices. An accelerator may take microseconds for each of the scalar loop's n³ turns. Triton takes powers of 2.
SIZES = {
    "cpu": {"scalar": 64, "element": 64, "tiled": 256, "xla": 256},
    "accelerator": {"scalar": 16, "element": 256, "tiled": 1024, "xla": 1024},
}
# Rows, columns and depth of a tile. Triton holds a tile in registers, a TPU in megabytes of vector memory, where the last axis must
# be a multiple of 128.
TILES = {"cpu": (64, 64, 64), "gpu": (64, 64, 32), "tpu": (256, 256, 256)}


def kernels(platform: str) -> list[Kernel]:
    """The four rungs, each at a size that it can do in reasonable time; FLOP/s compare them."""
    sizes = SIZES["cpu" if platform == "cpu" else "accelerator"]
    interpreted = "pallas, interpreted" if platform == "cpu" else "pallas"
    return [
        _rung("scalar_loop", sizes["scalar"], scalar_loop, "xla", "one number at a time"),
        _rung(
            "element",
            sizes["element"],
            partial(element_per_program, platform=platform),
            interpreted,
            "one element a program",
        ),
        _rung(
            "tiled",
            sizes["tiled"],
            partial(tiled, platform=platform),
            interpreted,
            "one tile a program",
        ),
        _rung("xla", sizes["xla"], xla, "xla", "the compiler's own"),
    ]


def _rung(
    name: str, n: int, function: Callable[[Array, Array], Array], lowering: str, note: str
) -> Kernel:
    shapes = ((n, n), (n, n))
    return Kernel(
        f"rung-{name}-{n}-float32", "matrix product, rung by rung", times(*shapes), "float32", normal("float32", *shapes), function,
        preset(True), "highest", lowering, flops=2 * n**3, reference=np.matmul, note=note,
    )  # fmt: skip


def scalar_loop(a: Array, b: Array) -> Array:
    """Three nested loops over numbers, one multiply-add a turn: ``f32[m, k] · f32[k, n]``."""
    (m, depth), n = a.shape, b.shape[1]

    def element(flat: Array, product: Array) -> Array:
        i, j = flat // n, flat % n
        total = lax.fori_loop(
            0, depth, lambda k, total: total + a[i, k] * b[k, j], jnp.zeros((), a.dtype)
        )
        return product.at[i, j].set(total)

    return lax.fori_loop(0, m * n, element, jnp.zeros((m, n), a.dtype))


def element_per_program(a: Array, b: Array, *, platform: str) -> Array:
    """One program for each output element, as the lecture's kernel has one thread: ``f32[m, k] · f32[k, n]``.

    A program reads a row of ``a`` and a column of ``b``. The columns are laid out as rows first, and every block is whole in its last
    two axes, because a TPU takes no other block as thin as one row, nor one as small as one element.
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
        **_options(platform),
    )
    return product(a[:, None, :], b.T[:, None, :])[:, :, 0, 0]


def _element(row, column, out) -> None:
    out[...] = jnp.sum(row[...] * column[...], axis=1, keepdims=True)


def tiled(a: Array, b: Array, *, platform: str) -> Array:
    """One program for each tile of the output, summed over tiles of the inputs: ``f32[m, k] · f32[k, n]``.

    Raises:
      ValueError: a side that is no multiple of the tile's, see `TILES`.
    """
    (m, depth), n = a.shape, b.shape[1]
    rows, columns, step = TILES[platform]
    if m % rows or n % columns or depth % step:
        raise ValueError(
            f"a product of {m}×{depth} and {depth}×{n} is not made of tiles of {rows}×{columns}, depth {step}"
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
        **_options(platform),
    )(a, b)


def _tile(a, b, out, *, step: int) -> None:
    def add(k: Array, total: Array) -> Array:
        at = pl.ds(pl.multiple_of(k * step, step), step)
        return total + jnp.dot(
            a[:, at], b[at, :], precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )

    out[...] = lax.fori_loop(0, a.shape[1] // step, add, jnp.zeros(out.shape, jnp.float32))


def _options(platform: str) -> dict[str, Any]:
    """How Pallas compiles for a platform. On GPUs Triton has to be asked for; JAX 0.12 announces that it will go."""
    if platform != "gpu":
        return {"interpret": platform == "cpu"}
    from jax.experimental.pallas.triton import CompilerParams

    return {"compiler_params": CompilerParams(num_warps=4, num_stages=2)}


def xla(a: Array, b: Array) -> Array:
    """The compiler's own."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
