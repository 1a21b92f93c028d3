"""Normalizations and radial basis functions against NumPy loops and central differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.ops import local_contrast_norm, local_response_norm, rbf
from tests.support.native import lowered_text


def gradients_and_differences(function, arguments, cotangent):
    """In float64: the gradients of ``sum(function(*arguments) * cotangent)``, twice.

    Returns those of `jax.vjp`, and central differences.
    """
    with jax.enable_x64(True):
        backward = jax.jit(lambda *args: jax.vjp(function, *args)[1](jnp.asarray(cotangent)))
        gradients = backward(*map(jnp.asarray, arguments))
        total = jax.jit(lambda *args: jnp.sum(function(*args) * cotangent))
        differences = [
            central_differences(
                lambda x, i=i: float(total(*arguments[:i], x, *arguments[i + 1 :])), argument
            )
            for i, argument in enumerate(arguments)
        ]
    return gradients, differences


def central_differences(function, argument, step=1e-5):
    slopes = np.zeros_like(argument)
    for index in np.ndindex(argument.shape):
        above, below = argument.copy(), argument.copy()
        above[index] += step
        below[index] -= step
        slopes[index] = (function(above) - function(below)) / (2 * step)
    return slopes


def numpy_response_norm(images, radius, bias, alpha, beta):
    result = np.zeros_like(images)
    for *place, channel in np.ndindex(images.shape):
        pixel = images[tuple(place)]
        neighbors = pixel[max(channel - radius, 0) : channel + radius + 1]
        result[(*place, channel)] = pixel[channel] / (bias + alpha * sum(neighbors**2)) ** beta
    return result


RESPONSE_SETTINGS = [  # radius, bias, alpha, beta
    (2, 2.0, 1e-4, 0.75),
    (2, 1.0, 0.5, 0.75),
    (1, 0.5, 2.0, 0.5),
    (0, 1.0, 1.0, 1.0),
    (9, 2.0, 0.3, 0.75),
]


@pytest.mark.parametrize(
    ("channels", "settings"), list(itertools.product([1, 3, 8], RESPONSE_SETTINGS))
)
def test_response_norm_agrees_with_numpy(channels, settings):
    rng = np.random.default_rng(0)
    images = 3 * rng.normal(size=(2, 2, 3, channels))
    cotangent = rng.normal(size=(2, 2, 3, channels))
    result = local_response_norm(jnp.float32(images), *settings)
    expected = numpy_response_norm(images, *settings)
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-7)
    gradients, differences = gradients_and_differences(
        lambda x: local_response_norm(x, *settings), [images], cotangent
    )
    np.testing.assert_allclose(gradients[0], differences[0], rtol=1e-6, atol=1e-8)


def test_response_norm_by_hand():
    """The paper's settings for one pixel with the channels 100, 200, 0, 0.

    The windows of the first two channels have the sum of squares 50,000, so both are divided by
    (2 + 1e-4 * 50,000) ** 0.75 = 7 ** 0.75.
    """
    images = jnp.array([100.0, 200.0, 0.0, 0.0])[None, None, None]
    expected = [100 / 7**0.75, 200 / 7**0.75, 0, 0]
    np.testing.assert_allclose(local_response_norm(images).ravel(), expected, rtol=1e-6)


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


def numpy_local_mean(image, j, k, window, sigma):
    """The weighted mean around a pixel of one image ``[H, W, C]``, over its own pixels."""
    total = weight = 0
    half = window // 2
    for p, q in itertools.product(range(-half, half + 1), repeat=2):
        if 0 <= j + p < image.shape[0] and 0 <= k + q < image.shape[1]:
            for value in image[j + p, k + q]:
                weight += np.exp(-(p * p + q * q) / (2 * sigma**2))
                total += np.exp(-(p * p + q * q) / (2 * sigma**2)) * value
    return total / weight


def numpy_contrast_norm(images, window, sigma, epsilon=1e-4):
    result = np.zeros_like(images)
    for n, image in enumerate(images):
        pixels = list(np.ndindex(image.shape[:2]))
        means = np.array([numpy_local_mean(image, *at, window, sigma) for at in pixels])
        centered = image - means.reshape(*image.shape[:2], 1)
        variances = [numpy_local_mean(centered**2, *at, window, sigma) for at in pixels]
        deviation = np.maximum(np.sqrt(variances), epsilon)
        divisor = np.maximum(deviation, deviation.mean())
        result[n] = centered / divisor.reshape(*image.shape[:2], 1)
    return result


@pytest.mark.parametrize(
    ("shape", "window", "sigma"),
    [((2, 6, 5, 2), 3, 1.0), ((1, 5, 4, 3), 9, 2.25), ((2, 4, 4, 1), 1, 0.5)],
)
def test_contrast_norm_agrees_with_numpy(shape, window, sigma):
    rng = np.random.default_rng(1)
    images, cotangent = rng.normal(size=shape), rng.normal(size=shape)
    result = local_contrast_norm(jnp.float32(images), window, sigma)
    expected = numpy_contrast_norm(images, window, sigma)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    gradients, differences = gradients_and_differences(
        lambda x: local_contrast_norm(x, window, sigma), [images], cotangent
    )
    np.testing.assert_allclose(gradients[0], differences[0], rtol=1e-5, atol=1e-6)


def test_contrast_norm_of_one_color_is_zero_up_to_the_edges():
    images = jnp.full((1, 12, 12, 3), 0.5)
    np.testing.assert_allclose(local_contrast_norm(images), 0, atol=5e-3)
    gradient = jax.grad(lambda x: local_contrast_norm(x).sum())(jnp.zeros((1, 12, 12, 3)))
    assert np.isfinite(gradient).all()


def test_contrast_norm_removes_brightness_and_contrast():
    images = jax.random.normal(jax.random.key(0), (2, 16, 16, 3))
    result = local_contrast_norm(images)
    np.testing.assert_allclose(local_contrast_norm(5 * images + 7), result, atol=1e-4)
    assert local_contrast_norm(images, 9).shape == images.shape
    np.testing.assert_array_equal(result, local_contrast_norm(images, 9, 2.25))


def test_rbf_agrees_with_numpy():
    rng = np.random.default_rng(2)
    features, centers = rng.normal(size=(3, 84)), rng.choice([-1.0, 1.0], (10, 84))
    cotangent = rng.normal(size=(3, 10))
    expected = [
        [sum((x - w) ** 2 for x, w in zip(row, center, strict=True)) for center in centers]
        for row in features
    ]
    distances = rbf(jnp.float32(features), jnp.float32(centers))
    assert distances.shape == (3, 10)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    gradients, differences = gradients_and_differences(rbf, [features, centers], cotangent)
    for gradient, difference in zip(gradients, differences, strict=True):
        np.testing.assert_allclose(gradient, difference, rtol=1e-6, atol=1e-7)


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
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.ones((1, 4, 4, 2)))


@pytest.mark.parametrize("norm", [local_response_norm, local_contrast_norm])
def test_vmap_loops_and_second_derivatives(norm):
    images = jax.random.normal(jax.random.key(0), (3, 2, 5, 5, 4))
    separate = jnp.stack([norm(x) for x in images])
    np.testing.assert_allclose(jax.vmap(norm)(images), separate, rtol=1e-6, atol=1e-7)
    looped = jax.lax.fori_loop(0, 2, lambda i, x: norm(x), images[0])
    np.testing.assert_allclose(looped, norm(norm(images[0])), rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda x: jnp.sum(norm(x) ** 2))
    second = jax.grad(lambda x: jnp.sum(slope(x) ** 2))(images[0])
    assert np.isfinite(second).all() and np.abs(second).max() > 0


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("norm", [local_response_norm, local_contrast_norm])
def test_no_matrix_product_is_added_to_the_networks_flops(norm, platform):
    gradient = jax.grad(lambda x: norm(x).sum())
    text = lowered_text(gradient, jnp.ones((2, 8, 8, 4)), platform=platform)
    assert "dot_general" not in text and "convolution" not in text
