import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn.ops import avg_pool, max_pool

WINDOWS = [(2, 2), (3, 3), (1, 4), (3, 2)]
STRIDES = [None, (1, 1), (2, 2), (3, 1), (4, 5)]


def starts(size, window, stride, padding):
    """Where along an axis the windows begin; negative in the padding."""
    if padding == "SAME":
        count = -(-size // stride)
        return [
            stride * i - max((count - 1) * stride + window - size, 0) // 2 for i in range(count)
        ]
    whole = [at for at in range(0, size, stride) if at + window <= size]
    missed = padding == "CEIL" and whole[-1] + window < size and whole[-1] + stride < size
    return whole + [whole[-1] + stride] * missed


def pools(images, window, strides, padding, cotangent=None):
    """In NumPy: the largest values, the means over whole windows and over the image's own pixels; or their gradients."""
    rows, columns = (
        starts(images.shape[1 + axis], window[axis], strides[axis], padding) for axis in (0, 1)
    )
    values = np.zeros((3, len(images), len(rows), len(columns), images.shape[3]))
    slopes = np.zeros((3, *images.shape))
    for (n, i, j, c), _ in np.ndenumerate(values[0]):
        high, wide = (
            slice(max(at, 0), at + size)
            for at, size in zip((rows[i], columns[j]), window, strict=True)
        )
        pixels = images[n, high, wide, c]
        whole = pixels.size if padding == "CEIL" else window[0] * window[1]
        values[:, n, i, j, c] = pixels.max(), pixels.sum() / whole, pixels.mean()
        if cotangent is not None:
            first = np.unravel_index(np.argmax(pixels), pixels.shape)
            slopes[0, n, high.start + first[0], wide.start + first[1], c] += cotangent[n, i, j, c]
            slopes[1, n, high, wide, c] += cotangent[n, i, j, c] / whole
            slopes[2, n, high, wide, c] += cotangent[n, i, j, c] / pixels.size
    return values if cotangent is None else slopes


def ours(window, strides, padding):
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
def test_every_window_stride_and_padding_against_loops_in_numpy(window, strides, padding):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 4, (2, 7, 10, 2)).astype(np.float32)  # many equals
    expected = pools(images, window, strides or window, padding)
    cotangent = rng.integers(1, 9, expected.shape[1:]).astype(np.float32)

    @jax.jit
    def both(x):
        found, backward = jax.vjp(ours(window, strides, padding), x)
        seeds = [jnp.zeros_like(found).at[k].set(cotangent) for k in range(3)]
        return found, jnp.stack([backward(seed)[0] for seed in seeds])

    found, slopes = both(images)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(
        slopes, pools(images, window, strides or window, padding, cotangent), rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [((3, 3), (2, 2), "CEIL"), ((3, 3), (1, 1), "SAME"), ((2, 2), None, "VALID")],
)
def test_dtypes(window, strides, padding, dtype):
    images = np.random.default_rng(0).integers(0, 4, (2, 7, 10, 2))
    with jax.enable_x64(dtype == "float64"):
        found, backward = jax.vjp(ours(window, strides, padding), jnp.asarray(images, dtype))
        (slope,) = backward(jnp.ones_like(found))
        assert found.dtype == slope.dtype == dtype
    expected = pools(images, window, strides or window, padding)
    np.testing.assert_array_equal(np.float64(found[0]), expected[0])
    tolerance = {"bfloat16": 2e-2, "float16": 2e-3, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(np.float64(found), expected, rtol=tolerance)
    reference = pools(images, window, strides or window, padding, np.ones(expected.shape[1:]))
    np.testing.assert_allclose(np.float64(slope), reference.sum(0), rtol=3 * tolerance)


def test_one_number_is_a_square():
    images = jax.random.normal(jax.random.key(0), (1, 7, 7, 2))
    for pool in (max_pool, avg_pool):
        np.testing.assert_array_equal(pool(images, 3, 2), pool(images, (3, 3), (2, 2)))
        np.testing.assert_array_equal(pool(images, 3), pool(images, (3, 3)))


def test_ceil_by_hand():
    """As PyTorch's documentation has it: 6 rows, window 3, stride 2: the third window has two rows; 5 rows: no third."""
    images = jnp.arange(36.0).reshape(1, 6, 6, 1)
    assert max_pool(images, 3, 2, "CEIL").ravel().tolist() == [14, 16, 17, 26, 28, 29, 32, 34, 35]
    assert avg_pool(images, 3, 2, "CEIL")[0, :, :, 0].tolist() == [
        [7, 9, 10.5],
        [19, 21, 22.5],
        [28, 30, 31.5],
    ]
    assert max_pool(images[:, :5, :5], 3, 2, "CEIL").shape == (1, 2, 2, 1)
    assert max_pool(images[:, :5, :5], 1, 3, "CEIL").shape == (
        1,
        2,
        2,
        1,
    )  # a third would start at 6


def test_images_smaller_than_the_window():
    assert (
        max_pool(jnp.ones((1, 2, 2, 1)), 3).shape
        == avg_pool(jnp.ones((1, 2, 2, 1)), 3).shape
        == (1, 0, 0, 1)
    )


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (2, 2, "FULL"),
            "padding must be one of VALID, SAME, CEIL, or less than the window in pixels; got 'FULL'",
        ),
        (
            (2, 2, ((1, 1), (1, 1))),
            r"or less than the window in pixels; got \(\(1, 1\), \(1, 1\)\)",
        ),
        ((0,), "window must be a positive whole number or a pair of them, got 0"),
        (
            ((2, 2, 2),),
            r"window must be a positive whole number or a pair of them, got \(2, 2, 2\)",
        ),
        ((2, 0), "strides must be a positive whole number or a pair of them, got 0"),
        ((2, (2, -1)), r"strides must be a positive whole number or a pair of them, got \(2, -1\)"),
        ((2.0,), "window must be a positive whole number or a pair of them, got 2.0"),
    ],
)
def test_impossible_settings_are_named(pool, arguments, message):
    with pytest.raises(ValueError, match=message):
        pool(jnp.ones((1, 4, 4, 1)), *arguments)


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_and_gradients_against_numpy(window, dtype):
    images = jax.random.normal(jax.random.key(0), (2, 7, 9, 3), dtype)
    rows, columns = 7 // window[0], 9 // window[1]
    cut = np.float32(images)[:, : rows * window[0], : columns * window[1]].reshape(
        2, rows, window[0], columns, window[1], 3
    )
    np.testing.assert_array_equal(np.float32(max_pool(images, window)), cut.max((2, 4)))
    np.testing.assert_allclose(
        np.float32(avg_pool(images, window)),
        cut.mean((2, 4)),
        rtol=1e-6 if dtype == "float32" else 1e-2,
        atol=1e-2,
    )
    gradient = jax.grad(lambda x: max_pool(x, window).astype("float32").sum())(images)
    largest = (cut == cut.max((2, 4), keepdims=True)).reshape(
        2, rows * window[0], columns * window[1], 3
    )
    if dtype == "float32":  # bfloat16 draws have ties
        np.testing.assert_array_equal(
            gradient[:, : rows * window[0], : columns * window[1]], largest
        )
    gradient = jax.grad(lambda x: avg_pool(x, window).astype("float32").sum())(images)
    assert np.unique(np.float32(gradient)).size == (
        1 if (rows * window[0], columns * window[1]) == (7, 9) else 2
    )
    assert float(gradient[0, 0, 0, 0]) == pytest.approx(1 / (window[0] * window[1]), rel=1e-2)


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [(2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (3, 3, "VALID")],
)
def test_the_first_of_equals_gets_the_whole_gradient_as_reduce_window_gives_it(
    window, strides, padding
):
    images = jnp.array([[3, 3, 0, 7], [3, 1, 7, 7], [7, 7, 3, 0]], jnp.float32)[None, :, :, None]

    def native(x):
        return lax.reduce_window(
            x, -jnp.inf, lax.max, (1, window, window, 1), (1, strides, strides, 1), padding
        )

    gradients = [
        jax.grad(lambda x, f=f: f(x).sum())(images)
        for f in (lambda x: max_pool(x, window, strides, padding), native)
    ]
    if window == 2:
        assert gradients[0][0, :, :, 0].tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_nan_is_not_hidden(place):
    images = jnp.array([1.0, 2.0, 3.0, 4.0]).at[place].set(jnp.nan).reshape(1, 2, 2, 1)
    for window, strides, padding in ((2, None, "VALID"), (2, 1, "VALID"), (3, 2, "CEIL")):
        assert np.isnan(max_pool(images, window, strides, padding)).all()
        assert np.isnan(avg_pool(images, window, strides, padding)).all()
        gradient = jax.grad(lambda x: max_pool(x, window, strides, padding).sum())(images)  # noqa: B023
        assert gradient.ravel().tolist() == [float(i == place) for i in range(4)]


def test_overlapping_and_padded_windows():
    images = jnp.arange(25, dtype=jnp.float32).reshape(1, 5, 5, 1)
    assert max_pool(images, (3, 3), (2, 2)).ravel().tolist() == [12, 14, 22, 24]
    assert max_pool(images, (2, 2), (2, 2), "SAME").ravel().tolist() == [
        6,
        8,
        9,
        16,
        18,
        19,
        21,
        23,
        24,
    ]
    assert avg_pool(images, (3, 3), (2, 2)).ravel().tolist() == [6, 8, 16, 18]


@pytest.mark.parametrize("settings", [(2,), (3, 2, "CEIL")])
def test_vmap_loops_and_second_derivatives(settings):
    images = jax.random.normal(jax.random.key(0), (3, 2, 6, 6, 1))
    for pool in (max_pool, avg_pool):
        np.testing.assert_array_equal(
            jax.vmap(lambda x, pool=pool: pool(x, *settings))(images),
            jnp.stack([pool(x, *settings) for x in images]),
        )
    slope = jax.grad(lambda x: jnp.sum(max_pool(x, *settings) ** 3))

    def moved(i, x):
        return x - 0.1 * slope(x)

    np.testing.assert_allclose(
        lax.fori_loop(0, 2, moved, images[0]), moved(1, moved(0, images[0])), rtol=1e-5
    )
    # of sum(max ** 3), one window a pixel: 3 max², and of its sum 6 max
    second = jax.grad(lambda x: jnp.sum(jax.grad(lambda y: jnp.sum(max_pool(y, 3, 3) ** 3))(x)))(
        images[0]
    )
    largest = np.asarray(max_pool(images[0], 3, 3)).repeat(3, 1).repeat(3, 2)
    np.testing.assert_allclose(second, np.where(images[0] == largest, 6 * largest, 0), rtol=1e-5)


@pytest.mark.parametrize("settings", [(2,), (3, 2, "SAME"), (3, 2, "CEIL")])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_pool_natively(platform, settings):
    images = jnp.ones((1, 4, 4, 1))
    lowered = (
        jax.jit(jax.grad(lambda x: max_pool(x, *settings).sum()))
        .trace(images)
        .lower(lowering_platforms=(platform,))
    )
    assert "select_and_scatter" in lowered.as_text()
    lowered = (
        jax.jit(lambda x: max_pool(x, *settings))
        .trace(images)
        .lower(lowering_platforms=(platform,))
    )
    assert "reduce_window" in lowered.as_text() and "stablehlo.slice" not in lowered.as_text()


@pytest.mark.parametrize("settings", [(2,), (3, 2, "SAME"), (3, 2, "CEIL"), (3, 1, "SAME")])
def test_no_slow_operation_is_left_on_a_cpu(settings):
    text = (
        jax.jit(jax.grad(lambda x: max_pool(x, *settings).sum()))
        .trace(jnp.ones((1, 6, 6, 1)))
        .lower(lowering_platforms=("cpu",))
    )
    assert "select_and_scatter" not in text.as_text() and "reduce_window" not in text.as_text()
