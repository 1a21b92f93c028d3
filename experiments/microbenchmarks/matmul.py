"""Matrix products over sizes and dtypes, what is made of them, and the inverse (systems B1, C10, D2, D3, E2)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times

CHECKED_ROWS = (
    64  # held against float64; all of a large product would take longer than the measurement
)

# Sides of the square matrices: on a CPU and on an accelerator, whose smaller ones are all overhead; the quick ones of each.
SIZES = {
    "cpu": (64, 128, 256, 512, 1024, 2048),
    "accelerator": (256, 512, 1024, 2048, 4096, 8192, 16384),
}
QUICK = {"cpu": (256, 1024), "accelerator": (1024, 8192)}
INVERSES = {"cpu": (128, 256, 512, 1024), "accelerator": (128, 256, 512, 1024, 2048, 4096)}
# dtype and precision of the products; high and default are one and the same on a CPU.
PRODUCTS = {
    "cpu": (
        ("float32", "default"), ("float32", "highest"), ("bfloat16", "default"), ("float16", "default"), ("int8", "default"),
    ),
    "accelerator": (
        ("float32", "default"), ("float32", "high"), ("float32", "highest"),
        ("bfloat16", "default"), ("float16", "default"), ("int8", "default"),
    ),
}  # fmt: skip


def kernels(platform: str) -> list[Kernel]:
    """Every kernel of this file, for a platform's sizes."""
    place = "cpu" if platform == "cpu" else "accelerator"
    largest = QUICK[place][-1]
    return [
        *(
            _product(n, *how, _quick(n, *how, place))
            for n in SIZES[place]
            for how in PRODUCTS[place]
        ),
        *(_gradient(n, n == QUICK[place][0]) for n in SIZES[place][2:]),
        *(_inverse(n, n == QUICK[place][0]) for n in INVERSES[place]),
        *(
            _fused(n, dtype, (n, dtype) == (largest, "float16"))
            for n in QUICK[place]
            for dtype in ("float16", "bfloat16")
        ),
        _tiles(),
        *(_layer(rows, rows == 1024) for rows in (1, 64, 1024)),
        _neurons(),
    ]


def _quick(n: int, dtype: str, precision: str, place: str) -> bool:
    """The small one in float32 alone, the large one in every dtype, and at both ends of the precisions."""
    if n == QUICK[place][0]:
        return (dtype, precision) == ("float32", "default")
    return n == QUICK[place][-1] and precision != "high"


def product(a: Array, b: Array, *, precision: str = "default") -> Array:
    """``[m, k] · [k, n]``: the sums of int8 in int32, those of the halves in float32, rounded to the halves."""
    return jnp.matmul(
        a,
        b,
        precision=precision,
        preferred_element_type=jnp.int32 if a.dtype == jnp.int8 else a.dtype,
    )


def _first_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:CHECKED_ROWS] @ b


def _product(n: int, dtype: str, precision: str, quick: bool) -> Kernel:
    shapes = ((n, n), (n, n))
    return Kernel(
        f"matmul-{n}-{dtype}{'' if precision == 'default' else f'-{precision}'}", "matrix product", times(*shapes), dtype,
        normal(dtype, *shapes), partial(product, precision=precision), preset(quick), precision, reference=_first_rows,
    )  # fmt: skip


def gradient(a: Array, b: Array) -> tuple[Array, Array]:
    """Of the sum of squares of ``a · b``, with respect to both: ``2 (a·b) bᵀ`` and ``2 aᵀ (a·b)``."""
    return jax.grad(lambda a, b: jnp.sum(jnp.square(a @ b)), (0, 1))(a, b)


def _gradient(n: int, quick: bool) -> Kernel:
    shapes = ((n, n), (n, n))
    return Kernel(
        f"matmul_gradient-{n}-float32", "gradient", times(*shapes), "float32", normal("float32", *shapes), gradient, preset(quick),
        reference=lambda a, b: 2 * (a[:CHECKED_ROWS] @ b) @ b.T,
    )  # fmt: skip


def _invertible(rng: np.random.Generator, n: int) -> tuple[np.ndarray]:
    """Its eigenvalues lie within 1 of 2 (the circular law), so that the inverse is no test of the arithmetic's precision."""
    return (
        2 * np.eye(n, dtype=np.float32)
        + rng.standard_normal((n, n), np.float32) / np.float32(np.sqrt(n)),
    )


def _inverse(n: int, quick: bool) -> Kernel:
    """2 n³ FLOPs: 2/3 n³ for the factors, 4/3 n³ for the inverse from them (getrf, getri: LAPACK Working Note 41, appendix C).

    Factors and solves are libraries' own, in plain float32 whatever products are computed in.
    """
    return Kernel(
        f"inverse-{n}-float32", "matrix inverse", times((n, n)), "float32", partial(_invertible, n=n), jnp.linalg.inv, preset(quick),
        "highest", flops=2 * n**3, reference=np.linalg.inv,
    )  # fmt: skip


def fused(a: Array, b: Array, c: Array) -> Array:
    """``D = A·B + C``, halves in, single sums out: what a tensor core does (system C10)."""
    return jnp.matmul(a, b, preferred_element_type=jnp.float32) + c


def _with_single_sum(
    rng: np.random.Generator, dtype: str, n: int, tiles: tuple[int, ...] = ()
) -> tuple[np.ndarray, ...]:
    shape = (*tiles, n, n)
    return *normal(dtype, shape, shape)(rng), *normal("float32", shape)(rng)


def _fused(n: int, dtype: str, quick: bool) -> Kernel:
    return Kernel(
        f"multiply_add-{n}-{dtype}", "matrix product", f"{times((n, n), (n, n))} + {times((n, n))}", dtype,
        partial(_with_single_sum, dtype=dtype, n=n), fused, preset(quick),
        reference=lambda a, b, c: a[:CHECKED_ROWS] @ b + c[:CHECKED_ROWS], note="D = A·B + C, the sum in float32",
    )  # fmt: skip


def _tiles() -> Kernel:
    return Kernel(
        "multiply_add-tiles-float16", "matrix product", "65536 times 4×4 · 4×4 + 4×4", "float16",
        partial(_with_single_sum, dtype="float16", n=4, tiles=(65536,)), fused,
        reference=lambda a, b, c: a[:CHECKED_ROWS] @ b[:CHECKED_ROWS] + c[:CHECKED_ROWS], note="D = A·B + C, the sum in float32",
    )  # fmt: skip


def layer(x: Array, weights: Array, bias: Array) -> Array:
    """``xW + b`` (system E2)."""
    return x @ weights + bias


def _layer(rows: int, quick: bool) -> Kernel:
    shapes = ((rows, 784), (784, 10), (10,))
    return Kernel(
        f"dense-784_10-b{rows}-float32", "layer", "{} · {} + {}".format(*map(times, shapes)), "float32", normal("float32", *shapes),
        layer, preset(quick), reference=lambda x, w, b: x[:CHECKED_ROWS] @ w + b,
    )  # fmt: skip


def _neurons() -> Kernel:
    shapes = ((3, 4), (4,))
    return Kernel(
        "dense-4_3-float32", "layer", times(*shapes), "float32", normal("float32", *shapes), product, preset(True),
        reference=lambda weights, x: weights @ x, note="one call is all overhead",
    )  # fmt: skip
