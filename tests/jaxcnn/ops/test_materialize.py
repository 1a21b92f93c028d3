"""`materialize` keeps values and gradients, and stops the compiler from recomputing them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.ops.materialize import materialize


@pytest.mark.parametrize("first", [1.0, np.nan, np.inf])
def test_values_and_gradients_are_unchanged(first):
    array = np.array([[first, -2.0], [0.0, 3.0]], np.float32)
    np.testing.assert_array_equal(jax.jit(materialize)(array), array)
    np.testing.assert_array_equal(materialize(jnp.arange(3)), [0, 1, 2])
    assert materialize(jnp.zeros((0, 2))).shape == (0, 2)
    np.testing.assert_array_equal(jax.vmap(materialize)(array), array)
    np.testing.assert_array_equal(
        jax.grad(lambda x: jnp.sum(materialize(x) * array[1]))(jnp.ones(2)), array[1]
    )


def test_a_materialized_value_is_computed_once():
    """The compiled program contains its maximum once; that of plain JAX, in both fusions."""

    def count_maxima(keep):
        def function(x):
            y = keep(jnp.maximum(x * 3, x))
            return jnp.transpose(y), y[::2].sum(0)

        text = jax.jit(function).lower(jnp.ones((256, 256))).compile().as_text()
        return text.count(" maximum(")

    assert count_maxima(materialize) == 1 < count_maxima(lambda x: x)
