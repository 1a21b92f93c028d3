"""Convolutions of random shapes and their gradients, against their definition in float64.

They may be over one, two or three axes, in several layouts, with any groups, strides, dilation and
padding, negative padding included.
"""

import jax
import numpy as np
import pytest

from jaxcnn.ops.cpu_lowering import fast_on_cpu
from tests.support.native import requires_kernels
from tests.support.random_convolutions import (
    by_definition,
    in_its_layout,
    largest_errors,
    random_convolution,
    with_gradients,
)

ROUNDING = 2.0**-23  # of float32, relative to the value


@requires_kernels
@pytest.mark.parametrize(
    "seeds",
    [
        range(40),
        *(pytest.param(range(i, i + 50), marks=pytest.mark.slow) for i in range(40, 540, 50)),
    ],
)
def test_errors_are_not_much_larger_than_those_of_xla(seeds):
    """At most four times with precision "highest", and eight times where Winograd's method is used.

    Or as many times a rounding error of the largest value, where XLA happens to be more exact.
    """
    for seed in seeds:
        precision, factor = (None, 8) if seed % 2 else ("highest", 4)
        rng = np.random.default_rng(seed)
        c = random_convolution(rng)
        shapes = c.images, c.kernel, (c.images[0], *c.result_size, c.kernel[-1])
        operands = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        exact = by_definition(c, *operands)

        def fast(images, kernel, c=c, precision=precision):
            with fast_on_cpu():
                return c.convolve(images, kernel, c.padding, precision)

        arrays = list(in_its_layout(c, operands))
        values, xla = (
            jax.jit(with_gradients, static_argnums=0)(function, *arrays) for function in (fast, c)
        )
        both = zip(largest_errors(c, values, exact), largest_errors(c, xla, exact), strict=True)
        for name, (error, of_xla) in zip(("images", "kernel", "result"), both, strict=True):
            assert error <= factor * max(of_xla, ROUNDING), (seed, name, error, of_xla, c)
    jax.clear_caches()  # hundreds of programs take gigabytes
