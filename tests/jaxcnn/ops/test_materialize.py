"""Values that a CPU program computes once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.ops.materialize import stored


@pytest.mark.parametrize("first", [1.0, np.nan, np.inf])
def test_what_is_stored_is_what_it_was(first):
    array = np.array([[first, -2.0], [0.0, 3.0]], np.float32)
    np.testing.assert_array_equal(jax.jit(stored)(array), array)
    np.testing.assert_array_equal(stored(jnp.arange(3)), [0, 1, 2])
    assert stored(jnp.zeros((0, 2))).shape == (0, 2)
    np.testing.assert_array_equal(jax.vmap(stored)(array), array)
    np.testing.assert_array_equal(
        jax.grad(lambda x: jnp.sum(stored(x) * array[1]))(jnp.ones(2)), array[1]
    )


def test_what_is_stored_is_computed_once():
    """Not by each of its users: the compiled program has the maximum once, where plain JAX has it in both fusions."""

    def program(keep):
        def function(x):
            y = keep(jnp.maximum(x * 3, x))
            return jnp.transpose(y), y[::2].sum(0)

        text = jax.jit(function).lower(jnp.ones((256, 256))).compile().as_text()
        return text.count(" maximum(")

    assert program(stored) == 1 < program(lambda x: x)
