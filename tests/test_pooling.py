import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn.ops import avg_pool, max_pool

# Worked example C6 of the studied documents.
EXAMPLE = jnp.array([[29, 15, 28, 184], [0, 100, 70, 38], [12, 12, 7, 2], [12, 12, 45, 6]], jnp.float32)[None, :, :, None]


def test_the_worked_example():
    assert max_pool(EXAMPLE).ravel().tolist() == [100, 184, 12, 45]
    assert avg_pool(EXAMPLE).ravel().tolist() == [36, 80, 12, 15]


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_and_gradients_against_numpy(window, dtype):
    images = jax.random.normal(jax.random.key(0), (2, 7, 9, 3), dtype)
    rows, columns = 7 // window[0], 9 // window[1]
    cut = np.float32(images)[:, : rows * window[0], : columns * window[1]].reshape(2, rows, window[0], columns, window[1], 3)
    np.testing.assert_array_equal(np.float32(max_pool(images, window)), cut.max((2, 4)))
    np.testing.assert_allclose(
        np.float32(avg_pool(images, window)), cut.mean((2, 4)), rtol=1e-6 if dtype == "float32" else 1e-2, atol=1e-2
    )
    gradient = jax.grad(lambda x: max_pool(x, window).astype("float32").sum())(images)
    largest = (cut == cut.max((2, 4), keepdims=True)).reshape(2, rows * window[0], columns * window[1], 3)
    if dtype == "float32":  # bfloat16 draws have ties
        np.testing.assert_array_equal(gradient[:, : rows * window[0], : columns * window[1]], largest)
    gradient = jax.grad(lambda x: avg_pool(x, window).astype("float32").sum())(images)
    assert np.unique(np.float32(gradient)).size == (1 if (rows * window[0], columns * window[1]) == (7, 9) else 2)
    assert float(gradient[0, 0, 0, 0]) == pytest.approx(1 / (window[0] * window[1]), rel=1e-2)


def test_the_first_of_equals_gets_the_whole_gradient_as_reduce_window_gives_it():
    images = jnp.array([[3, 3, 0, 7], [3, 1, 7, 7]], jnp.float32)[None, :, :, None]

    def native(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    gradients = [jax.grad(lambda x, f=f: f(x).sum())(images) for f in (max_pool, native)]
    assert gradients[0][0, :, :, 0].tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_nan_is_not_hidden(place):
    images = jnp.array([1.0, 2.0, 3.0, 4.0]).at[place].set(jnp.nan).reshape(1, 2, 2, 1)
    assert np.isnan(max_pool(images)).all()
    assert np.isnan(avg_pool(images)).all()


def test_overlapping_and_padded_windows():
    images = jnp.arange(25, dtype=jnp.float32).reshape(1, 5, 5, 1)
    assert max_pool(images, (3, 3), (2, 2)).ravel().tolist() == [12, 14, 22, 24]
    assert max_pool(images, (2, 2), (2, 2), "SAME").ravel().tolist() == [6, 8, 9, 16, 18, 19, 21, 23, 24]
    assert avg_pool(images, (3, 3), (2, 2)).ravel().tolist() == [6, 8, 16, 18]


def test_vmap():
    images = jax.random.normal(jax.random.key(0), (3, 2, 4, 4, 1))
    np.testing.assert_array_equal(jax.vmap(max_pool)(images), jnp.stack([max_pool(x) for x in images]))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_pool_natively(platform):
    lowered = jax.jit(jax.grad(lambda x: max_pool(x).sum())).trace(jnp.ones((1, 4, 4, 1))).lower(lowering_platforms=(platform,))
    assert "select_and_scatter" in lowered.as_text()
    lowered = jax.jit(max_pool).trace(jnp.ones((1, 4, 4, 1))).lower(lowering_platforms=(platform,))
    assert "reduce_window" in lowered.as_text() and "stablehlo.slice" not in lowered.as_text()
