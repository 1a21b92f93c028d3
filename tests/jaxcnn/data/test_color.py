import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.color import (
    EIGENVALUES,
    EIGENVECTORS,
    adjust_hsv,
    brightness,
    contrast,
    hsv_jitter,
    hsv_to_rgb,
    lighting,
    random_factor,
    rgb_to_hsv,
)
from jaxcnn.errors import InputError

KEYS = jax.random.split(jax.random.key(0), 2000)
LEVELS = [0, 0.25, 1]
# Grays, primaries and colors with equal channels, then random colors.
GRID = np.array(np.meshgrid(LEVELS, LEVELS, LEVELS), np.float32).reshape(3, -1).T
COLORS = np.concatenate([GRID, np.random.default_rng(0).random((200, 3), np.float32)])
IMAGE = jnp.array(COLORS[27:].reshape(10, 20, 3))


def test_rgb_to_hsv_equals_colorsys():
    expected = np.array([colorsys.rgb_to_hsv(*map(float, rgb)) for rgb in COLORS])
    hsv = np.asarray(rgb_to_hsv(jnp.array(COLORS)))
    hue_error = (hsv[:, 0] - expected[:, 0] + 0.5) % 1 - 0.5  # a hue of 1 equals one of 0
    np.testing.assert_allclose(hue_error, 0, atol=1e-5)
    np.testing.assert_allclose(hsv[:, 1:], expected[:, 1:], atol=1e-6)


def test_hsv_to_rgb_equals_colorsys_for_hues_outside_0_to_1_too():
    expected = [colorsys.hsv_to_rgb(*map(float, hsv)) for hsv in COLORS]
    for turns in (-1, 0, 2):
        np.testing.assert_allclose(
            hsv_to_rgb(jnp.array(COLORS) + jnp.array([turns, 0.0, 0.0])), expected, atol=3e-6
        )


@pytest.mark.parametrize(
    ("adjustment", "expected"),
    [
        ((0.0, 1.0, 1.0), (0.8, 0.4, 0.4)),
        ((1 / 3, 1.0, 1.0), (0.4, 0.8, 0.4)),  # red to green
        ((-1 / 3, 1.0, 1.0), (0.4, 0.4, 0.8)),  # red to blue
        ((0.0, 0.5, 1.0), (0.8, 0.6, 0.6)),
        ((0.0, 1.0, 0.5), (0.4, 0.2, 0.2)),
        ((0.0, 1.0, 1.5), (1.0, 0.6, 0.6)),  # 1.2 clipped
        ((0.0, 3.0, 1.0), (0.8, 0.0, 0.0)),  # saturation 1.5 gives -0.4, clipped
    ],
)
def test_adjust_hsv_by_hand(adjustment, expected):
    np.testing.assert_allclose(
        adjust_hsv(jnp.array([[[0.8, 0.4, 0.4]]]), *adjustment)[0, 0], expected, atol=1e-5
    )


def test_adjust_hsv_equals_the_same_adjustment_by_colorsys():
    results = adjust_hsv(IMAGE, 0.07, 0.8, 0.9).reshape(-1, 3)
    for rgb, result in zip(np.asarray(IMAGE).reshape(-1, 3), np.asarray(results), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*map(float, rgb))
        np.testing.assert_allclose(
            result, colorsys.hsv_to_rgb((hue + 0.07) % 1, saturation * 0.8, value * 0.9), atol=1e-5
        )


def test_a_gray_image_has_neither_hue_nor_saturation():
    gray = jnp.array([[[0.2], [0.9]]])
    np.testing.assert_allclose(adjust_hsv(gray, 0.3, 0.1, 1.25).ravel(), [0.25, 1.0])
    assert hsv_jitter(gray, KEYS[0]).shape == gray.shape


def test_random_factors_are_distributed_as_in_darknet():
    """Half of them uniform in 0.75 … 1, half reciprocals: means 0.875 and ln(4/3) / 0.25."""
    factors = np.asarray(jax.vmap(lambda key: random_factor(key, 0.75))(KEYS))
    below = factors[factors <= 1]
    assert 0.75 <= factors.min() < 0.751 and 1.33 < factors.max() <= 4 / 3 + 1e-6
    assert abs(len(below) - 1000) < 4 * np.sqrt(500)
    assert abs(below.mean() - 0.875) < 0.01
    assert abs(factors[factors > 1].mean() - np.log(4 / 3) / 0.25) < 0.013


def test_hsv_jitter_draws_hue_saturation_and_exposure_independently():
    pixel = jnp.array([[[0.6, 0.3, 0.45]]])  # nothing is clipped
    before = rgb_to_hsv(pixel[0, 0])
    after = np.asarray(jax.vmap(lambda key: rgb_to_hsv(hsv_jitter(pixel, key)[0, 0]))(KEYS))
    hue_shifts, factors = (after[:, 0] - before[0] + 0.5) % 1 - 0.5, after[:, 1:] / before[1:]
    assert np.abs(hue_shifts).max() <= 0.1 + 1e-5
    assert hue_shifts.min() < -0.099 and hue_shifts.max() > 0.099
    assert factors.min() >= 0.75 - 1e-4 and factors.max() <= 4 / 3 + 1e-4
    correlation = np.corrcoef(np.column_stack([hue_shifts, factors]).T)
    assert np.abs(correlation - np.eye(3)).max() < 4 / np.sqrt(len(KEYS))


def test_brightness_adds_the_same_offset_of_up_to_63_of_255_to_all_pixels():
    offsets = jax.vmap(lambda key: brightness(IMAGE, key) - IMAGE)(KEYS[:500])
    offsets = np.asarray(offsets).reshape(500, -1)
    np.testing.assert_allclose(offsets.std(1), 0, atol=1e-6)
    assert np.abs(offsets).max() <= 63 / 255 + 1e-6
    assert offsets.min() < -0.24 and offsets.max() > 0.24
    assert abs(offsets[:, 0].mean()) < 4 * 63 / 255 / np.sqrt(3 * 500)


def test_contrast_scales_each_channel_about_its_own_mean():
    results = np.asarray(jax.vmap(lambda key: contrast(IMAGE, key))(KEYS[:500]))
    mean = np.asarray(IMAGE).mean((0, 1))
    np.testing.assert_allclose(results.mean((1, 2)), np.tile(mean, (500, 1)), atol=1e-5)
    factors = (results - mean) / (np.asarray(IMAGE) - mean)
    # One factor for each image; it is inexact for pixels near the mean.
    assert np.ptp(factors, axis=(1, 2, 3)).max() < 1e-2
    factors = np.median(factors, (1, 2, 3))
    assert 0.2 <= factors.min() < 0.21 and 1.79 < factors.max() <= 1.8
    assert abs(factors.mean() - 1) < 4 * 0.8 / np.sqrt(3 * 500)
    assert results.max() > 1 and results.min() < 0  # not clipped


def test_lighting_adds_colors_along_the_principal_components():
    """Their covariance is V diag((0.1 λ)²) Vᵀ."""
    vectors = np.array(EIGENVECTORS)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-3)
    offsets = jax.vmap(lambda key: lighting(IMAGE, key) - IMAGE)(KEYS)
    offsets = np.asarray(offsets).reshape(len(KEYS), -1, 3)
    np.testing.assert_allclose(offsets.std(1), 0, atol=1e-6)  # the same for every pixel
    amounts = offsets[:, 0].astype(np.float64) @ vectors
    np.testing.assert_allclose(amounts.std(0), 0.1 * np.array(EIGENVALUES), rtol=0.08)
    assert (np.abs(amounts.mean(0)) < 4 * 0.1 * np.array(EIGENVALUES) / np.sqrt(len(KEYS))).all()
    assert np.abs(np.corrcoef(amounts.T) - np.eye(3)).max() < 4 / np.sqrt(len(KEYS))


def test_lighting_of_a_gray_image_is_an_error():
    with pytest.raises(InputError, match="'lighting' needs RGB images: these have 1 channel"):
        lighting(IMAGE[..., :1], KEYS[0])
