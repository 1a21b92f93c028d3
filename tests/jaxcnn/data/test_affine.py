import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from jaxcnn.data.affine import (
    AffineParams,
    CropBox,
    affine,
    apply_affine,
    crop_and_resize,
    random_affine_params,
    random_crop_box,
    resized_crop,
)

KEYS = jax.random.split(jax.random.key(0), 2000)
NUMBERED = jnp.arange(9.0).reshape(3, 3, 1)


def random_image(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).random((height, width, channels), np.float32)


def keras_matrix(params: AffineParams, height: int, width: int) -> np.ndarray:
    """The matrix of Keras's `apply_affine_transform`, multiplied in its order."""
    cos, sin = np.cos(params.rotation), np.sin(params.rotation)
    rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    shift = np.array([[1, 0, params.shift[0]], [0, 1, params.shift[1]], [0, 0, 1]])
    shear = np.array([[1, -np.sin(params.shear), 0], [0, np.cos(params.shear), 0], [0, 0, 1]])
    zoom = np.diag([*params.zoom, 1])
    row, column = height / 2 - 0.5, width / 2 - 0.5
    from_center, to_center = (
        np.array([[1, 0, sign * row], [0, 1, sign * column], [0, 0, 1]]) for sign in (1, -1)
    )
    return from_center @ rotation @ shift @ shear @ zoom @ to_center


@pytest.mark.parametrize("size", [(12, 12), (9, 16), (17, 8), (1, 5)], ids=str)
@pytest.mark.parametrize(
    "params",
    [
        AffineParams(),
        AffineParams(rotation=np.deg2rad(40)),
        AffineParams(shift=(1.7, -2.4)),
        AffineParams(shear=np.deg2rad(25)),
        AffineParams(zoom=(0.8, 1.2)),
        AffineParams(np.deg2rad(-33), (-1.9, 2.2), np.deg2rad(0.2), (1.15, 0.83)),
        AffineParams(np.deg2rad(110), (3.3, 0.4), np.deg2rad(-30), (0.5, 1.9)),
    ],
    ids=["identity", "rotation", "shift", "shear", "zoom", "small", "large"],
)
def test_apply_affine_equals_scipy_with_the_keras_matrix(params, size):
    image, matrix = random_image(*size), keras_matrix(params, *size)
    expected = [
        scipy.ndimage.affine_transform(
            image[..., channel], matrix[:2, :2], matrix[:2, 2], order=1, mode="nearest"
        )
        for channel in range(3)
    ]
    np.testing.assert_allclose(
        apply_affine(jnp.array(image), params), np.stack(expected, -1), atol=2e-5
    )


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (AffineParams(), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (AffineParams(shift=(1.0, 0.0)), [[3, 4, 5], [6, 7, 8], [6, 7, 8]]),
        (AffineParams(shift=(0.0, -1.0)), [[0, 0, 1], [3, 3, 4], [6, 6, 7]]),
        (AffineParams(rotation=np.pi / 2), [[6, 3, 0], [7, 4, 1], [8, 5, 2]]),
        (AffineParams(zoom=(0.5, 1.0)), [[1.5, 2.5, 3.5], [3, 4, 5], [4.5, 5.5, 6.5]]),
    ],
    ids=["identity", "up", "right", "clockwise", "rows twice as high"],
)
def test_apply_affine_by_hand(params, expected):
    np.testing.assert_allclose(apply_affine(NUMBERED, params)[..., 0], expected, atol=1e-5)


def test_each_affine_parameter_is_uniform_in_its_range():
    """The mean of 2,000 draws is within four standard errors; the draws approach both limits."""
    params = jax.vmap(lambda key: random_affine_params(key, (50, 100)))(KEYS)
    ranges = [
        (params.rotation, 0, np.deg2rad(40)),
        (params.shear, 0, np.deg2rad(0.2)),
        (params.shift[0], 0, 10),
        (params.shift[1], 0, 20),
        (params.zoom[0], 1, 0.2),
        (params.zoom[1], 1, 0.2),
    ]
    scaled = np.array([(np.asarray(values) - center) / limit for values, center, limit in ranges])
    assert np.abs(scaled).max() <= 1 + 1e-6
    assert (scaled.max(1) > 0.99).all() and (scaled.min(1) < -0.99).all()
    assert np.abs(scaled.mean(1)).max() < 4 / np.sqrt(3 * len(KEYS))
    assert np.abs(np.corrcoef(scaled) - np.eye(6)).max() < 4 / np.sqrt(len(KEYS))


def test_affine_applies_random_params_and_adds_no_values():
    image = jnp.array(random_image(10, 14))
    result = affine(image, KEYS[0])
    np.testing.assert_array_equal(
        result, apply_affine(image, random_affine_params(KEYS[0], (10, 14)))
    )
    assert image.min() <= result.min() and result.max() <= image.max()


def test_crop_and_resize_by_hand():
    whole = CropBox(0.0, 0.0, 3.0, 3.0)
    np.testing.assert_allclose(crop_and_resize(NUMBERED, whole, (3, 3)), NUMBERED, atol=1e-6)
    np.testing.assert_allclose(
        crop_and_resize(NUMBERED, CropBox(1.0, 0.0, 2.0, 2.0), (2, 2))[..., 0],
        [[3, 4], [6, 7]],
        atol=1e-6,
    )
    # Two columns from three: their centers are at 0.25 and 1.75 pixels. One row: the middle one.
    np.testing.assert_allclose(
        crop_and_resize(NUMBERED, whole, (1, 2))[..., 0], [[3.25, 4.75]], atol=1e-6
    )


def test_crop_and_resize_of_the_whole_image_equals_resizing():
    image = jnp.array(random_image(9, 14))
    expected = jax.image.resize(image, (13, 21, 3), "linear")
    np.testing.assert_allclose(
        crop_and_resize(image, CropBox(0.0, 0.0, 9.0, 14.0), (13, 21)), expected, atol=1e-5
    )


@pytest.mark.parametrize(
    ("size", "max_area"), [((64, 64), 1.0), ((60, 70), 1.0), ((50, 100), 2 / 3), ((120, 30), 1 / 3)]
)
def test_crop_boxes_have_the_area_and_the_aspect_ratio_of_the_paper(size, max_area):
    top, left, height, width = (
        np.asarray(field) for field in jax.vmap(lambda key: random_crop_box(key, size))(KEYS)
    )
    area, ratio = height * width / (size[0] * size[1]), width / height
    assert top.min() >= -1e-4 and left.min() >= -1e-4
    assert (top + height).max() <= size[0] + 1e-4 and (left + width).max() <= size[1] + 1e-4
    assert area.min() >= 0.08 - 1e-5 and area.max() <= max_area + 1e-5
    assert ratio.min() >= 3 / 4 - 1e-5 and ratio.max() <= 4 / 3 + 1e-5
    standard_error = (max_area - 0.08) / np.sqrt(12 * len(KEYS))
    assert abs(area.mean() - (0.08 + max_area) / 2) < 4 * standard_error


def test_small_crop_boxes_have_a_uniform_position_and_a_log_uniform_aspect_ratio():
    top, left, height, width = (
        np.asarray(field) for field in jax.vmap(lambda key: random_crop_box(key, (64, 64)))(KEYS)
    )
    small = height * width < 0.5 * 64 * 64
    fractions = np.array(
        [top / (64 - height), left / (64 - width), (np.log(width / height) / np.log(4 / 3) + 1) / 2]
    )[:, small]
    assert np.abs(fractions.mean(1) - 0.5).max() < 4 / np.sqrt(12 * small.sum())
    assert fractions.min() < 0.01 and fractions.max() > 0.99


def test_a_very_long_image_has_crop_boxes_too():
    box = random_crop_box(KEYS[0], (2, 100))
    assert 0 < box.width <= 4 / 3 * box.height + 1e-4 and box.height <= 2 + 1e-4


def test_resized_crop_has_the_target_size_and_the_values_of_its_box():
    ramp = jnp.broadcast_to(jnp.arange(32.0)[:, None, None], (32, 32, 1))
    box, crop = random_crop_box(KEYS[1], (32, 32)), resized_crop(ramp, KEYS[1], (8, 6))
    assert crop.shape == (8, 6, 1)
    np.testing.assert_allclose(crop[3:5].mean(), box.top + box.height / 2 - 0.5, rtol=1e-5)
