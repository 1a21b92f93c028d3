"""What the tests of our own kernels share: arrays, the text of a program, and the mark of those that cannot do without."""

import jax
import pytest

from jaxcnn.ops import native

needed = pytest.mark.skipif(not native.available(), reason="no kernels were built")


def drawn(*shapes: tuple[int, ...]) -> list[jax.Array]:
    """From a normal distribution, for each shape."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def lowered(function, *arguments, platform: str = "cpu") -> str:
    """The text of a program for a platform."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
