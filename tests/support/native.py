"""What the tests of kernels and lowerings share: a skip mark, random arrays, and programs."""

import jax
import pytest
from jax import export

from jaxcnn.ops import native

requires_kernels = pytest.mark.skipif(not native.available(), reason="no kernels were built")


def random_arrays(*shapes: tuple[int, ...]) -> list[jax.Array]:
    """One array per shape, from a normal distribution; the same arrays in every call."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def lowered_text(function, *arguments, platform: str = "cpu") -> str:
    """The text of a function's program for a platform, before compilation."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def run_program_for_a_gpu(function, *arguments):
    """The result of a function's program for a GPU, run here.

    It must consist of operations that every platform has.
    """
    any_platform = [export.DisabledSafetyCheck.platform()]
    program = export.export(jax.jit(function), platforms=["cuda"], disabled_checks=any_platform)
    return jax.jit(program(*arguments).call)(*arguments)
