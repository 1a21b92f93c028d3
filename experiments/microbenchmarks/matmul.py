"""Matrix products over sizes and dtypes, their gradients, products in layers, and the inverse."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.microbenchmarks.kernel import (
    Kernel,
    format_shapes,
    normal_operands,
    size_class,
)

# Rows compared with float64; computing a whole large product would take longer than the
# measurement.
CHECKED_ROWS = 64

# Sides of the square matrices on a CPU and on an accelerator, where smaller ones are all overhead.
SIZES = {
    "cpu": (64, 128, 256, 512, 1024, 2048),
    "accelerator": (256, 512, 1024, 2048, 4096, 8192, 16384),
}
QUICK = {"cpu": (256, 1024), "accelerator": (1024, 8192)}  # the small and the large quick side
INVERSES = {"cpu": (128, 256, 512, 1024), "accelerator": (128, 256, 512, 1024, 2048, 4096)}
# dtype and precision of the products; high and default are the same on a CPU.
PRODUCTS = {
    "cpu": (
        ("float32", "default"),
        ("float32", "highest"),
        ("bfloat16", "default"),
        ("float16", "default"),
        ("int8", "default"),
    ),
    "accelerator": (
        ("float32", "default"),
        ("float32", "high"),
        ("float32", "highest"),
        ("bfloat16", "default"),
        ("float16", "default"),
        ("int8", "default"),
    ),
}


def kernels(platform: str) -> list[Kernel]:
    """All kernels of this file, in the sizes for a platform."""
    sizes = size_class(platform)
    small, large = QUICK[sizes]
    return [
        *(
            _product(n, dtype, precision, quick=_is_quick(n, dtype, precision, sizes))
            for n in SIZES[sizes]
            for dtype, precision in PRODUCTS[sizes]
        ),
        *(_gradient(n, quick=n == small) for n in SIZES[sizes][2:]),
        *(_inverse(n, quick=n == small) for n in INVERSES[sizes]),
        *(
            _multiply_add(n, dtype, quick=(n, dtype) == (large, "float16"))
            for n in QUICK[sizes]
            for dtype in ("float16", "bfloat16")
        ),
        _multiply_add_tiles(),
        *(_layer(rows, quick=rows == 1024) for rows in (1, 64, 1024)),
        _neurons(),
    ]


def _is_quick(n: int, dtype: str, precision: str, sizes: str) -> bool:
    """The small product only in float32, the large one in every dtype, but not with ``high``."""
    small, large = QUICK[sizes]
    if n == small:
        return (dtype, precision) == ("float32", "default")
    return n == large and precision != "high"


def product(a: Array, b: Array, *, precision: str = "default") -> Array:
    """``[m, k] · [k, n]``.

    Sums of int8 are in int32; sums of half-precision numbers in float32, rounded to half precision.
    """
    dtype = jnp.int32 if a.dtype == jnp.int8 else a.dtype
    return jnp.matmul(a, b, precision=precision, preferred_element_type=dtype)


def _first_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:CHECKED_ROWS] @ b


def _product(n: int, dtype: str, precision: str, *, quick: bool) -> Kernel:
    shapes = ((n, n), (n, n))
    suffix = "" if precision == "default" else f"-{precision}"
    return Kernel(
        name=f"matmul-{n}-{dtype}{suffix}",
        group="matrix product",
        shape=format_shapes(*shapes),
        dtype=dtype,
        make_operands=normal_operands(dtype, *shapes),
        function=partial(product, precision=precision),
        quick=quick,
        precision=precision,
        reference=_first_rows,
    )


def gradient(a: Array, b: Array) -> tuple[Array, Array]:
    """The gradients of the sum of squares of ``a · b``: ``2 (a·b) bᵀ`` and ``2 aᵀ (a·b)``."""
    return jax.grad(lambda a, b: jnp.sum(jnp.square(a @ b)), (0, 1))(a, b)


def _gradient(n: int, *, quick: bool) -> Kernel:
    shapes = ((n, n), (n, n))
    return Kernel(
        name=f"matmul_gradient-{n}-float32",
        group="gradient",
        shape=format_shapes(*shapes),
        dtype="float32",
        make_operands=normal_operands("float32", *shapes),
        function=gradient,
        quick=quick,
        reference=lambda a, b: 2 * (a[:CHECKED_ROWS] @ b) @ b.T,
    )


def _invertible(rng: np.random.Generator, n: int) -> tuple[np.ndarray]:
    """A well-conditioned matrix, so that its inverse does not test the precision of arithmetic.

    Its eigenvalues lie within 1 of 2 (the circular law).
    """
    noise = rng.standard_normal((n, n), np.float32) / np.float32(np.sqrt(n))
    return (2 * np.eye(n, dtype=np.float32) + noise,)


def _inverse(n: int, *, quick: bool) -> Kernel:
    """2 n³ FLOPs: 2/3 n³ for the factors, 4/3 n³ for the inverse from them.

    That is getrf and getri (LAPACK Working Note 41, appendix C). Factorization and solves are calls
    of libraries, in plain float32 whatever the precision of products is.
    """
    return Kernel(
        name=f"inverse-{n}-float32",
        group="matrix inverse",
        shape=format_shapes((n, n)),
        dtype="float32",
        make_operands=partial(_invertible, n=n),
        function=jnp.linalg.inv,
        quick=quick,
        precision="highest",
        flops=2 * n**3,
        reference=np.linalg.inv,
    )


def fused(a: Array, b: Array, c: Array) -> Array:
    """``D = A·B + C`` as a tensor core computes it: half-precision factors, a float32 sum."""
    return jnp.matmul(a, b, preferred_element_type=jnp.float32) + c


_MULTIPLY_ADD = "D = A·B + C, the sum in float32"


def _multiply_add_operands(
    rng: np.random.Generator, dtype: str, n: int, tiles: tuple[int, ...] = ()
) -> tuple[np.ndarray, ...]:
    shape = (*tiles, n, n)
    factors = normal_operands(dtype, shape, shape)(rng)
    return *factors, *normal_operands("float32", shape)(rng)


def _multiply_add(n: int, dtype: str, *, quick: bool) -> Kernel:
    return Kernel(
        name=f"multiply_add-{n}-{dtype}",
        group="matrix product",
        shape=f"{format_shapes((n, n), (n, n))} + {format_shapes((n, n))}",
        dtype=dtype,
        make_operands=partial(_multiply_add_operands, dtype=dtype, n=n),
        function=fused,
        quick=quick,
        reference=lambda a, b, c: a[:CHECKED_ROWS] @ b + c[:CHECKED_ROWS],
        note=_MULTIPLY_ADD,
    )


def _multiply_add_tiles() -> Kernel:
    rows = slice(CHECKED_ROWS)
    return Kernel(
        name="multiply_add-tiles-float16",
        group="matrix product",
        shape="65536 times 4×4 · 4×4 + 4×4",
        dtype="float16",
        make_operands=partial(_multiply_add_operands, dtype="float16", n=4, tiles=(65536,)),
        function=fused,
        reference=lambda a, b, c: a[rows] @ b[rows] + c[rows],
        note=_MULTIPLY_ADD,
    )


def layer(x: Array, weights: Array, bias: Array) -> Array:
    """``xW + b``."""
    return x @ weights + bias


def _layer(rows: int, *, quick: bool) -> Kernel:
    shapes = ((rows, 784), (784, 10), (10,))
    return Kernel(
        name=f"dense-784_10-b{rows}-float32",
        group="layer",
        shape=f"{format_shapes(*shapes[:2])} + {format_shapes(shapes[2])}",
        dtype="float32",
        make_operands=normal_operands("float32", *shapes),
        function=layer,
        quick=quick,
        reference=lambda x, w, b: x[:CHECKED_ROWS] @ w + b,
    )


def _neurons() -> Kernel:
    shapes = ((3, 4), (4,))
    return Kernel(
        name="dense-4_3-float32",
        group="layer",
        shape=format_shapes(*shapes),
        dtype="float32",
        make_operands=normal_operands("float32", *shapes),
        function=product,
        quick=True,
        reference=lambda weights, x: weights @ x,
        note="a call is all overhead",
    )
