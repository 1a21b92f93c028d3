"""The normalisations and radial basis functions against loops in NumPy, their gradients against central differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.ops import local_contrast_norm, local_response_norm, rbf


def gradients(function, arguments, cotangent):
    """In float64: those of `jax.vjp`, and central differences of ``sum(function(*arguments) * cotangent)``."""
    with jax.enable_x64(True):
        found = jax.jit(lambda *a: jax.vjp(function, *a)[1](jnp.asarray(cotangent)))(
            *map(jnp.asarray, arguments)
        )
        run = jax.jit(lambda *a: jnp.sum(function(*a) * cotangent))
        expected = []
        for place, argument in enumerate(arguments):
            slopes = np.zeros_like(argument)
            for index in np.ndindex(argument.shape):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = argument.copy()
                    moved[index] += step
                    ends.append(float(run(*arguments[:place], moved, *arguments[place + 1 :])))
                slopes[index] = (ends[0] - ends[1]) / 2e-5
            expected.append(slopes)
    return found, expected


def response_norm(images, radius, bias, alpha, beta):
    result = np.zeros_like(images)
    for *place, channel in np.ndindex(images.shape):
        pixel = images[tuple(place)]
        around = pixel[max(channel - radius, 0) : channel + radius + 1]
        result[(*place, channel)] = pixel[channel] / (bias + alpha * sum(around**2)) ** beta
    return result


SETTINGS = [
    (2, 2.0, 1e-4, 0.75),
    (2, 1.0, 0.5, 0.75),
    (1, 0.5, 2.0, 0.5),
    (0, 1.0, 1.0, 1.0),
    (9, 2.0, 0.3, 0.75),
]


@pytest.mark.parametrize(("channels", "settings"), list(itertools.product([1, 3, 8], SETTINGS)))
def test_response_norm_against_numpy(channels, settings):
    rng = np.random.default_rng(0)
    images, cotangent = (
        3 * rng.normal(size=(2, 2, 3, channels)),
        rng.normal(size=(2, 2, 3, channels)),
    )
    np.testing.assert_allclose(
        local_response_norm(jnp.float32(images), *settings),
        response_norm(images, *settings),
        rtol=2e-6,
        atol=1e-7,
    )
    found, expected = gradients(lambda x: local_response_norm(x, *settings), [images], cotangent)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-8)


def test_response_norm_by_hand():
    """The paper's values on one pixel with channels 100, 200, 0, 0: sums 50,000 twice, then 50,000 and 40,000; 2 + 5 = 7."""
    images = jnp.array([100.0, 200.0, 0.0, 0.0])[None, None, None]
    np.testing.assert_allclose(
        local_response_norm(images).ravel(), [100 / 7**0.75, 200 / 7**0.75, 0, 0], rtol=1e-6
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("norm", [local_response_norm, local_contrast_norm])
def test_half_precisions_are_computed_in_float32(norm, dtype):
    images = 40 * jax.random.normal(jax.random.key(0), (2, 5, 5, 8), dtype)
    assert norm(images).dtype == dtype
    np.testing.assert_array_equal(norm(images), norm(images.astype("float32")).astype(dtype))
    gradient, reference = (
        jax.grad(lambda x: norm(x).astype("float32")[0].sum())(x)
        for x in (images, images.astype("float32"))
    )
    assert gradient.dtype == dtype
    np.testing.assert_allclose(np.float32(gradient), reference, rtol=0.02, atol=0.01)


def contrast_norm(images, window, sigma, epsilon=1e-4):
    half = window // 2

    def local_mean(image, j, k):
        total = weight = 0
        for p, q in itertools.product(range(-half, half + 1), repeat=2):
            if 0 <= j + p < image.shape[0] and 0 <= k + q < image.shape[1]:
                for value in image[j + p, k + q]:
                    weight += np.exp(-(p * p + q * q) / (2 * sigma**2))
                    total += np.exp(-(p * p + q * q) / (2 * sigma**2)) * value
        return total / weight

    result = np.zeros_like(images)
    for n, image in enumerate(images):
        places = list(np.ndindex(image.shape[:2]))
        centred = image - np.array([local_mean(image, *at) for at in places]).reshape(
            *image.shape[:2], 1
        )
        deviation = np.array([max(local_mean(centred**2, *at) ** 0.5, epsilon) for at in places])
        result[n] = centred / np.maximum(deviation, deviation.mean()).reshape(*image.shape[:2], 1)
    return result


@pytest.mark.parametrize(
    ("shape", "window", "sigma"),
    [((2, 6, 5, 2), 3, 1.0), ((1, 5, 4, 3), 9, 2.25), ((2, 4, 4, 1), 1, 0.5)],
)
def test_contrast_norm_against_numpy(shape, window, sigma):
    rng = np.random.default_rng(1)
    images, cotangent = rng.normal(size=shape), rng.normal(size=shape)
    expected = contrast_norm(images, window, sigma)
    np.testing.assert_allclose(
        local_contrast_norm(jnp.float32(images), window, sigma), expected, rtol=1e-4, atol=1e-5
    )
    found, expected = gradients(
        lambda x: local_contrast_norm(x, window, sigma), [images], cotangent
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


def test_contrast_norm_of_one_colour_is_zero_up_to_the_edges():
    images = jnp.full((1, 12, 12, 3), 0.5)
    np.testing.assert_allclose(local_contrast_norm(images), 0, atol=5e-3)
    assert np.isfinite(
        jax.grad(lambda x: local_contrast_norm(x).sum())(jnp.zeros((1, 12, 12, 3)))
    ).all()


def test_contrast_norm_forgets_brightness_and_contrast():
    images = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
    np.testing.assert_allclose(
        local_contrast_norm(5 * images + 7), local_contrast_norm(images), atol=1e-4
    )
    assert local_contrast_norm(images, 9).shape == images.shape
    np.testing.assert_array_equal(local_contrast_norm(images), local_contrast_norm(images, 9, 2.25))


def test_rbf_against_numpy():
    rng = np.random.default_rng(2)
    features, centres, cotangent = (
        rng.normal(size=(3, 84)),
        rng.choice([-1.0, 1.0], (10, 84)),
        rng.normal(size=(3, 10)),
    )
    expected = [
        [sum((x - w) ** 2 for x, w in zip(row, centre, strict=True)) for centre in centres]
        for row in features
    ]
    found = rbf(jnp.float32(features), jnp.float32(centres))
    assert found.shape == (3, 10)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    slopes, expected = gradients(rbf, [features, centres], cotangent)
    for slope, reference in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, reference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: local_response_norm(x, -1), "radius must not be negative, got -1"),
        (lambda x: local_contrast_norm(x, 8), "window must be odd and positive, got 8"),
        (lambda x: local_contrast_norm(x, -3), "window must be odd and positive, got -3"),
        (lambda x: local_contrast_norm(x, sigma=0.0), "sigma must be positive, got 0.0"),
        (lambda x: local_contrast_norm(x, epsilon=-1.0), "epsilon must be positive, got -1.0"),
    ],
)
def test_impossible_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.ones((1, 4, 4, 2)))


@pytest.mark.parametrize("norm", [local_response_norm, local_contrast_norm])
def test_vmap_loops_and_second_derivatives(norm):
    images = jax.random.normal(jax.random.key(0), (3, 2, 5, 5, 4))
    np.testing.assert_allclose(
        jax.vmap(norm)(images), jnp.stack([norm(x) for x in images]), rtol=1e-6, atol=1e-7
    )
    looped = jax.lax.fori_loop(0, 2, lambda i, x: norm(x), images[0])
    np.testing.assert_allclose(looped, norm(norm(images[0])), rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda x: jnp.sum(jax.grad(lambda y: jnp.sum(norm(y) ** 2))(x) ** 2))(
        images[0]
    )
    assert np.isfinite(slope).all() and np.abs(slope).max() > 0


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("norm", [local_response_norm, local_contrast_norm])
def test_no_matrix_product_is_added_to_the_networks_flops(norm, platform):
    gradient = jax.jit(jax.grad(lambda x: norm(x).sum()))
    text = gradient.trace(jnp.ones((2, 8, 8, 4))).lower(lowering_platforms=(platform,)).as_text()
    assert "dot_general" not in text and "convolution" not in text
