"""Helpers of tests that compare float32 results with float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def random_arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Standard normal arrays ``f64[shape]``."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def run_in_float32(function: Any, *operands: Any) -> Any:
    """The result of a jitted function of float32 operands, converted to float64."""
    results = jax.jit(function)(*map(jnp.float32, operands))
    return jax.tree.map(lambda result: np.asarray(result, np.float64), results)
