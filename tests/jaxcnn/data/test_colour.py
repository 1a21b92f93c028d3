import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.colour import (
    EIGENVALUES,
    EIGENVECTORS,
    brightness,
    colour,
    contrast,
    draw_factor,
    hsv_to_rgb,
    lighting,
    recoloured,
    rgb_to_hsv,
)
from jaxcnn.errors import InputError

KEYS = jax.random.split(jax.random.key(0), 2000)
CORNERS = (
    np.array(np.meshgrid([0, 0.25, 1], [0, 0.25, 1], [0, 0.25, 1]), np.float32).reshape(3, -1).T
)  # grey, ties, primaries
COLOURS = np.concatenate([CORNERS, np.random.default_rng(0).random((200, 3), np.float32)])
IMAGE = jnp.array(COLOURS[27:].reshape(10, 20, 3))


def test_hsv_is_that_of_colorsys():
    expected = np.array([colorsys.rgb_to_hsv(*map(float, rgb)) for rgb in COLOURS])
    found = np.asarray(rgb_to_hsv(jnp.array(COLOURS)))
    turns = (found[:, 0] - expected[:, 0] + 0.5) % 1 - 0.5  # a hue of 1 is one of 0
    np.testing.assert_allclose(turns, 0, atol=1e-5)
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=1e-6)


def test_rgb_is_that_of_colorsys_for_any_turn_of_the_circle():
    expected = [colorsys.hsv_to_rgb(*map(float, hsv)) for hsv in COLOURS]
    for turns in (-1, 0, 2):
        np.testing.assert_allclose(
            hsv_to_rgb(jnp.array(COLOURS) + jnp.array([turns, 0, 0])), expected, atol=3e-6
        )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((0.0, 1.0, 1.0), (0.8, 0.4, 0.4)),
        ((1 / 3, 1.0, 1.0), (0.4, 0.8, 0.4)),  # red turned to green
        ((-1 / 3, 1.0, 1.0), (0.4, 0.4, 0.8)),  # and to blue
        ((0.0, 0.5, 1.0), (0.8, 0.6, 0.6)),
        ((0.0, 1.0, 0.5), (0.4, 0.2, 0.2)),
        ((0.0, 1.0, 1.5), (1.0, 0.6, 0.6)),  # 1.2 clipped
        ((0.0, 3.0, 1.0), (0.8, 0.0, 0.0)),  # saturation 1.5 gives -0.4, clipped
    ],
)
def test_recoloured_by_hand(change, expected):
    np.testing.assert_allclose(
        recoloured(jnp.array([[[0.8, 0.4, 0.4]]]), *change)[0, 0], expected, atol=1e-5
    )


def test_recoloured_is_darknets_way_by_colorsys():
    found = recoloured(IMAGE, 0.07, 0.8, 0.9).reshape(-1, 3)
    for rgb, result in zip(np.asarray(IMAGE).reshape(-1, 3), np.asarray(found), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*map(float, rgb))
        np.testing.assert_allclose(
            result, colorsys.hsv_to_rgb((hue + 0.07) % 1, saturation * 0.8, value * 0.9), atol=1e-5
        )


def test_a_grey_image_has_neither_hue_nor_saturation():
    grey = jnp.array([[[0.2], [0.9]]])
    np.testing.assert_allclose(recoloured(grey, 0.3, 0.1, 1.25).ravel(), [0.25, 1.0])
    assert colour(grey, KEYS[0]).shape == grey.shape


def test_factors_are_darknets():
    """Half of them uniform in 0.75 … 1, half one over such: means 0.875 and ln(4/3) / 0.25."""
    factors = np.asarray(jax.vmap(lambda key: draw_factor(key, 0.75))(KEYS))
    below = factors[factors <= 1]
    assert 0.75 <= factors.min() < 0.751 and 1.33 < factors.max() <= 4 / 3 + 1e-6
    assert abs(len(below) - 1000) < 4 * np.sqrt(500)
    assert abs(below.mean() - 0.875) < 0.01
    assert abs(factors[factors > 1].mean() - np.log(4 / 3) / 0.25) < 0.013


def test_colour_draws_hue_saturation_and_exposure_each_for_itself():
    pixel = jnp.array([[[0.6, 0.3, 0.45]]])  # nothing is clipped
    before = rgb_to_hsv(pixel[0, 0])
    after = np.asarray(jax.vmap(lambda key: rgb_to_hsv(colour(pixel, key)[0, 0]))(KEYS))
    turns, scales = (after[:, 0] - before[0] + 0.5) % 1 - 0.5, after[:, 1:] / before[1:]
    assert np.abs(turns).max() <= 0.1 + 1e-5 and turns.min() < -0.099 and turns.max() > 0.099
    assert scales.min() >= 0.75 - 1e-4 and scales.max() <= 4 / 3 + 1e-4
    assert np.abs(np.corrcoef(np.column_stack([turns, scales]).T) - np.eye(3)).max() < 4 / np.sqrt(
        len(KEYS)
    )


def test_brightness_adds_one_number_of_up_to_63_of_255():
    added = np.asarray(jax.vmap(lambda key: brightness(IMAGE, key) - IMAGE)(KEYS[:500])).reshape(
        500, -1
    )
    np.testing.assert_allclose(added.std(1), 0, atol=1e-6)
    assert np.abs(added).max() <= 63 / 255 + 1e-6
    assert added.min() < -0.24 and added.max() > 0.24
    assert abs(added[:, 0].mean()) < 4 * 63 / 255 / np.sqrt(3 * 500)


def test_contrast_stretches_each_channel_about_its_own_mean():
    found = np.asarray(jax.vmap(lambda key: contrast(IMAGE, key))(KEYS[:500]))
    mean = np.asarray(IMAGE).mean((0, 1))
    np.testing.assert_allclose(found.mean((1, 2)), np.tile(mean, (500, 1)), atol=1e-5)
    factors = (found - mean) / (np.asarray(IMAGE) - mean)
    assert (
        np.ptp(factors, axis=(1, 2, 3)).max() < 1e-2
    )  # one factor an image; a pixel near the mean is not exact
    factors = np.median(factors, (1, 2, 3))
    assert 0.2 <= factors.min() < 0.21 and 1.79 < factors.max() <= 1.8
    assert abs(factors.mean() - 1) < 4 * 0.8 / np.sqrt(3 * 500)
    assert found.max() > 1 and found.min() < 0  # not clipped


def test_lighting_adds_colours_along_the_principal_components():
    """Their covariance is V diag((0.1 λ)²) Vᵀ."""
    vectors = np.array(EIGENVECTORS)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-3)
    added = np.asarray(jax.vmap(lambda key: lighting(IMAGE, key) - IMAGE)(KEYS)).reshape(
        len(KEYS), -1, 3
    )
    np.testing.assert_allclose(added.std(1), 0, atol=1e-6)  # the same for every pixel
    amounts = added[:, 0].astype(np.float64) @ vectors
    np.testing.assert_allclose(amounts.std(0), 0.1 * np.array(EIGENVALUES), rtol=0.08)
    assert (np.abs(amounts.mean(0)) < 4 * 0.1 * np.array(EIGENVALUES) / np.sqrt(len(KEYS))).all()
    assert np.abs(np.corrcoef(amounts.T) - np.eye(3)).max() < 4 / np.sqrt(len(KEYS))


def test_lighting_of_a_grey_image_is_refused():
    with pytest.raises(InputError, match="'lighting' is for RGB images: these have 1 channel"):
        lighting(IMAGE[..., :1], KEYS[0])
