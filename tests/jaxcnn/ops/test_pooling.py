"""Max and average pooling against loops in NumPy and examples by hand, gradients included."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn.ops import avg_pool, max_pool
from tests.support.native import lowered_text, run_program_for_a_gpu
from tests.support.numpy_pooling import numpy_gradients, numpy_pools

WINDOWS = [(2, 2), (3, 3), (1, 4), (3, 2)]
STRIDES = [None, (1, 1), (2, 2), (3, 1), (4, 5)]


def our_pools(window, strides, padding):
    """The same three pools by `jaxcnn`, as a function of the images."""
    return lambda x: jnp.stack(
        [
            max_pool(x, window, strides, padding),
            avg_pool(x, window, strides, padding),
            avg_pool(x, window, strides, padding, count_padding=False),
        ]
    )


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    list(itertools.product(WINDOWS, STRIDES, ["VALID", "SAME", "CEIL"])),
)
def test_all_windows_strides_and_paddings_agree_with_numpy(window, strides, padding):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 4, (2, 7, 10, 2)).astype(np.float32)  # with many equal values
    expected = numpy_pools(images, window, strides or window, padding)
    cotangent = rng.integers(1, 9, expected.shape[1:]).astype(np.float32)

    @jax.jit
    def values_and_gradients(x):
        values, backward = jax.vjp(our_pools(window, strides, padding), x)
        cotangents = [jnp.zeros_like(values).at[k].set(cotangent) for k in range(3)]
        return values, jnp.stack([backward(cotangent)[0] for cotangent in cotangents])

    values, gradients = values_and_gradients(images)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    reference = numpy_gradients(images, window, strides or window, padding, cotangent)
    np.testing.assert_allclose(gradients, reference, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [((3, 3), (2, 2), "CEIL"), ((3, 3), (1, 1), "SAME"), ((2, 2), None, "VALID")],
)
def test_all_dtypes_agree_with_numpy(window, strides, padding, dtype):
    images = np.random.default_rng(0).integers(0, 4, (2, 7, 10, 2))
    with jax.enable_x64(dtype == "float64"):
        values, backward = jax.vjp(our_pools(window, strides, padding), jnp.asarray(images, dtype))
        (gradient,) = backward(jnp.ones_like(values))
        assert values.dtype == gradient.dtype == dtype
    expected = numpy_pools(images, window, strides or window, padding)
    np.testing.assert_array_equal(np.float64(values[0]), expected[0])
    tolerance = {"bfloat16": 2e-2, "float16": 2e-3, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(np.float64(values), expected, rtol=tolerance)
    ones = np.ones(expected.shape[1:])
    reference = numpy_gradients(images, window, strides or window, padding, ones)
    np.testing.assert_allclose(np.float64(gradient), reference.sum(0), rtol=3 * tolerance)


def test_one_number_is_used_for_both_axes():
    images = jax.random.normal(jax.random.key(0), (1, 7, 7, 2))
    for pool in (max_pool, avg_pool):
        np.testing.assert_array_equal(pool(images, 3, 2), pool(images, (3, 3), (2, 2)))
        np.testing.assert_array_equal(pool(images, 3), pool(images, (3, 3)))


def test_ceil_padding_by_hand():
    """As in PyTorch's documentation, with window 3 and stride 2.

    With 6 rows the third window has two rows; with 5 rows there is no third window.
    """
    images = jnp.arange(36.0).reshape(1, 6, 6, 1)
    assert max_pool(images, 3, 2, "CEIL").ravel().tolist() == [14, 16, 17, 26, 28, 29, 32, 34, 35]
    means = [[7, 9, 10.5], [19, 21, 22.5], [28, 30, 31.5]]
    assert avg_pool(images, 3, 2, "CEIL")[0, :, :, 0].tolist() == means
    assert max_pool(images[:, :5, :5], 3, 2, "CEIL").shape == (1, 2, 2, 1)
    # The third window would start at 6, outside of the image.
    assert max_pool(images[:, :5, :5], 1, 3, "CEIL").shape == (1, 2, 2, 1)


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
def test_images_smaller_than_the_window_give_an_empty_result(pool):
    assert pool(jnp.ones((1, 2, 2, 1)), 3).shape == (1, 0, 0, 1)


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (2, 2, "FULL"),
            "padding must be one of VALID, SAME, CEIL, or a number of pixels that is smaller than "
            "the window; got 'FULL'",
        ),
        ((2, 2, ((1, 1), (1, 1))), r"smaller than the window; got \(\(1, 1\), \(1, 1\)\)"),
        ((0,), "window must be a positive integer or a pair of them, got 0"),
        (((2, 2, 2),), r"window must be a positive integer or a pair of them, got \(2, 2, 2\)"),
        ((2, 0), "strides must be a positive integer or a pair of them, got 0"),
        ((2, (2, -1)), r"strides must be a positive integer or a pair of them, got \(2, -1\)"),
        ((2.0,), "window must be a positive integer or a pair of them, got 2.0"),
    ],
)
def test_invalid_arguments_are_refused(pool, arguments, message):
    with pytest.raises(ValueError, match=message):
        pool(jnp.ones((1, 4, 4, 1)), *arguments)


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_windows_side_by_side_agree_with_numpy(window, dtype):
    images = jax.random.normal(jax.random.key(0), (2, 7, 9, 3), dtype)
    rows, columns = 7 // window[0], 9 // window[1]
    height, width = rows * window[0], columns * window[1]
    shape = (2, rows, window[0], columns, window[1], 3)
    windows = np.float32(images)[:, :height, :width].reshape(shape)
    np.testing.assert_array_equal(np.float32(max_pool(images, window)), windows.max((2, 4)))
    rtol = 1e-6 if dtype == "float32" else 1e-2
    means = np.float32(avg_pool(images, window))
    np.testing.assert_allclose(means, windows.mean((2, 4)), rtol=rtol, atol=1e-2)
    gradient = jax.grad(lambda x: max_pool(x, window).astype("float32").sum())(images)
    if dtype == "float32":  # random bfloat16 numbers have ties
        is_largest = windows == windows.max((2, 4), keepdims=True)
        is_largest = is_largest.reshape(2, height, width, 3)
        np.testing.assert_array_equal(gradient[:, :height, :width], is_largest)
    gradient = jax.grad(lambda x: avg_pool(x, window).astype("float32").sum())(images)
    covers_all_pixels = (height, width) == (7, 9)
    assert np.unique(np.float32(gradient)).size == (1 if covers_all_pixels else 2)
    assert float(gradient[0, 0, 0, 0]) == pytest.approx(1 / (window[0] * window[1]), rel=1e-2)


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [(2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (3, 3, "VALID")],
)
def test_the_first_of_equal_maxima_receives_the_gradient(window, strides, padding):
    """As in the gradient of `jax.lax.reduce_window`."""
    images = jnp.array([[3, 3, 0, 7], [3, 1, 7, 7], [7, 7, 3, 0]], jnp.float32)[None, :, :, None]

    def reduce_window(x):
        sizes, steps = (1, window, window, 1), (1, strides, strides, 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, sizes, steps, padding)

    def ours(x):
        return max_pool(x, window, strides, padding)

    gradient, reference = (
        jax.grad(lambda x, f=f: f(x).sum())(images) for f in (ours, reduce_window)
    )
    if window == 2:
        assert gradient[0, :, :, 0].tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(gradient, reference)


@pytest.mark.parametrize("settings", [(2, None, "VALID"), (2, 1, "VALID"), (3, 2, "CEIL")])
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_nan_is_not_hidden(position, settings):
    images = jnp.array([1.0, 2.0, 3.0, 4.0]).at[position].set(jnp.nan).reshape(1, 2, 2, 1)
    assert np.isnan(max_pool(images, *settings)).all()
    assert np.isnan(avg_pool(images, *settings)).all()
    gradient = jax.grad(lambda x: max_pool(x, *settings).sum())(images)
    assert gradient.ravel().tolist() == [float(i == position) for i in range(4)]


def test_overlapping_and_padded_windows_by_hand():
    images = jnp.arange(25, dtype=jnp.float32).reshape(1, 5, 5, 1)
    assert max_pool(images, (3, 3), (2, 2)).ravel().tolist() == [12, 14, 22, 24]
    maxima = max_pool(images, (2, 2), (2, 2), "SAME")[0, :, :, 0]
    assert maxima.tolist() == [[6, 8, 9], [16, 18, 19], [21, 23, 24]]
    assert avg_pool(images, (3, 3), (2, 2)).ravel().tolist() == [6, 8, 16, 18]


@pytest.mark.parametrize("settings", [(2,), (3, 2, "CEIL")])
@pytest.mark.parametrize("pool", [max_pool, avg_pool])
def test_vmap_agrees_with_a_loop(pool, settings):
    images = jax.random.normal(jax.random.key(0), (3, 2, 6, 6, 1))
    mapped = jax.vmap(lambda x: pool(x, *settings))(images)
    np.testing.assert_array_equal(mapped, jnp.stack([pool(x, *settings) for x in images]))


@pytest.mark.parametrize("settings", [(2,), (3, 2, "CEIL")])
def test_gradients_inside_a_loop(settings):
    images = jax.random.normal(jax.random.key(0), (2, 6, 6, 1))
    slope = jax.grad(lambda x: jnp.sum(max_pool(x, *settings) ** 3))

    def descend(i, x):
        return x - 0.1 * slope(x)

    looped = lax.fori_loop(0, 2, descend, images)
    np.testing.assert_allclose(looped, descend(1, descend(0, images)), rtol=1e-5)


def test_second_derivatives_by_hand():
    """The sum of max ** 3 has the gradient 3 max ** 2 at the maxima, and the sum of that 6 max."""
    images = jax.random.normal(jax.random.key(0), (2, 6, 6, 1))
    slope = jax.grad(lambda x: jnp.sum(max_pool(x, 3, 3) ** 3))
    second = jax.grad(lambda x: jnp.sum(slope(x)))(images)
    largest = np.asarray(max_pool(images, 3, 3)).repeat(3, 1).repeat(3, 2)
    np.testing.assert_allclose(second, np.where(images == largest, 6 * largest, 0), rtol=1e-5)


@pytest.mark.parametrize("settings", [(2,), (3, 2, "SAME"), (3, 2, "CEIL")])
@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_tpus_keep_the_pools_of_jax_and_gpus_all_but_the_gradient(platform, settings):
    images = jnp.ones((1, 4, 4, 1))
    text = lowered_text(lambda x: max_pool(x, *settings), images, platform=platform)
    assert "reduce_window" in text and "stablehlo.slice" not in text
    gradient = jax.grad(lambda x: max_pool(x, *settings).sum())
    text = lowered_text(gradient, images, platform=platform)
    assert ("select_and_scatter" in text) == (platform == "tpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("padding", ["VALID", "SAME", "CEIL"])
@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("window", WINDOWS)
def test_gradients_in_a_program_for_a_gpu_agree_with_numpy(window, strides, padding, dtype):
    rng, strides = np.random.default_rng(0), strides or window
    images = rng.integers(0, 4, (2, 7, 10, 2)).astype(np.float32)  # with many equal values
    shape = max_pool(images, window, strides, padding).shape
    cotangent = rng.integers(1, 9, shape).astype(np.float32)  # whose sums bfloat16 has exactly

    def gradient(x, cotangent):
        return jax.vjp(lambda x: max_pool(x, window, strides, padding), x)[1](cotangent)[0]

    arguments = jnp.asarray(images, dtype), jnp.asarray(cotangent, dtype)
    result = run_program_for_a_gpu(gradient, *arguments)
    assert result.dtype == dtype
    expected, *_ = numpy_gradients(images, window, strides, padding, cotangent)
    np.testing.assert_array_equal(np.float32(result), expected)


@pytest.mark.parametrize("settings", [(2,), (3, 2, "SAME"), (3, 2, "CEIL"), (3, 1, "SAME")])
def test_cpu_programs_contain_no_slow_operation(settings):
    gradient = jax.grad(lambda x: max_pool(x, *settings).sum())
    text = lowered_text(gradient, jnp.ones((1, 6, 6, 1)))
    assert "select_and_scatter" not in text and "reduce_window" not in text
