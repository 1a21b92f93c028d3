import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from jaxcnn.data.affine import (
    Box,
    Motion,
    affine,
    cut_out,
    draw_box,
    draw_motion,
    moved,
    resized_crop,
)

KEYS = jax.random.split(jax.random.key(0), 2000)
DIGITS = jnp.arange(9.0).reshape(3, 3, 1)


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).random((height, width, channels), np.float32)


def keras_matrix(motion: Motion, height: int, width: int) -> np.ndarray:
    """The matrix of Keras's `apply_affine_transform`, multiplied as it does."""
    cos, sin = np.cos(motion.rotation), np.sin(motion.rotation)
    rotation = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    shift = np.array([[1, 0, motion.shift[0]], [0, 1, motion.shift[1]], [0, 0, 1]])
    shear = np.array([[1, -np.sin(motion.shear), 0], [0, np.cos(motion.shear), 0], [0, 0, 1]])
    zoom = np.diag([*motion.zoom, 1])
    row, column = height / 2 - 0.5, width / 2 - 0.5
    there, back = (
        np.array([[1, 0, sign * row], [0, 1, sign * column], [0, 0, 1]]) for sign in (1, -1)
    )
    return there @ rotation @ shift @ shear @ zoom @ back


@pytest.mark.parametrize("size", [(12, 12), (9, 16), (17, 8), (1, 5)], ids=str)
@pytest.mark.parametrize(
    "motion",
    [
        Motion(),
        Motion(rotation=np.deg2rad(40)),
        Motion(shift=(1.7, -2.4)),
        Motion(shear=np.deg2rad(25)),
        Motion(zoom=(0.8, 1.2)),
        Motion(np.deg2rad(-33), (-1.9, 2.2), np.deg2rad(0.2), (1.15, 0.83)),
        Motion(np.deg2rad(110), (3.3, 0.4), np.deg2rad(-30), (0.5, 1.9)),
    ],
    ids=["identity", "rotation", "shift", "shear", "zoom", "small", "large"],
)
def test_moved_is_scipy_with_the_matrix_of_keras(motion, size):
    image, matrix = picture(*size), keras_matrix(motion, *size)
    expected = [
        scipy.ndimage.affine_transform(
            image[..., i], matrix[:2, :2], matrix[:2, 2], order=1, mode="nearest"
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(moved(jnp.array(image), motion), np.stack(expected, -1), atol=2e-5)


@pytest.mark.parametrize(
    ("motion", "expected"),
    [
        (Motion(), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (Motion(shift=(1.0, 0.0)), [[3, 4, 5], [6, 7, 8], [6, 7, 8]]),
        (Motion(shift=(0.0, -1.0)), [[0, 0, 1], [3, 3, 4], [6, 6, 7]]),
        (Motion(rotation=np.pi / 2), [[6, 3, 0], [7, 4, 1], [8, 5, 2]]),
        (Motion(zoom=(0.5, 1.0)), [[1.5, 2.5, 3.5], [3, 4, 5], [4.5, 5.5, 6.5]]),
    ],
    ids=["identity", "up", "right", "clockwise", "rows twice as high"],
)
def test_moved_by_hand(motion, expected):
    np.testing.assert_allclose(moved(DIGITS, motion)[..., 0], expected, atol=1e-5)


def test_every_parameter_is_uniform_between_its_limits():
    """The mean of 2,000 draws is within four standard errors, and draws come near both limits."""
    motions = jax.vmap(lambda key: draw_motion(key, (50, 100)))(KEYS)
    limits = [(motions.rotation, 0, np.deg2rad(40)), (motions.shear, 0, np.deg2rad(0.2))]
    limits += [
        (motions.shift[0], 0, 10),
        (motions.shift[1], 0, 20),
        (motions.zoom[0], 1, 0.2),
        (motions.zoom[1], 1, 0.2),
    ]
    scaled = np.array([(np.asarray(values) - middle) / limit for values, middle, limit in limits])
    assert np.abs(scaled).max() <= 1 + 1e-6
    assert (scaled.max(1) > 0.99).all() and (scaled.min(1) < -0.99).all()
    assert np.abs(scaled.mean(1)).max() < 4 / np.sqrt(3 * len(KEYS))
    assert np.abs(np.corrcoef(scaled) - np.eye(6)).max() < 4 / np.sqrt(len(KEYS))


def test_affine_moves_by_what_was_drawn_and_invents_no_values():
    image = jnp.array(picture(10, 14))
    found = affine(image, KEYS[0])
    np.testing.assert_array_equal(found, moved(image, draw_motion(KEYS[0], (10, 14))))
    assert image.min() <= found.min() and found.max() <= image.max()


def test_cut_out_by_hand():
    np.testing.assert_allclose(cut_out(DIGITS, Box(0.0, 0.0, 3.0, 3.0), (3, 3)), DIGITS, atol=1e-6)
    np.testing.assert_allclose(
        cut_out(DIGITS, Box(1.0, 0.0, 2.0, 2.0), (2, 2))[..., 0], [[3, 4], [6, 7]], atol=1e-6
    )
    # two columns from three: their middles are at 0.25 and 1.75 pixels; one row: the middle one
    np.testing.assert_allclose(
        cut_out(DIGITS, Box(0.0, 0.0, 3.0, 3.0), (1, 2))[..., 0], [[3.25, 4.75]], atol=1e-6
    )


def test_cut_out_is_resizing_where_the_box_is_the_whole():
    image = jnp.array(picture(9, 14))
    expected = jax.image.resize(image, (13, 21, 3), "linear")
    np.testing.assert_allclose(
        cut_out(image, Box(0.0, 0.0, 9.0, 14.0), (13, 21)), expected, atol=1e-5
    )


@pytest.mark.parametrize(
    ("size", "largest"), [((64, 64), 1.0), ((60, 70), 1.0), ((50, 100), 2 / 3), ((120, 30), 1 / 3)]
)
def test_boxes_have_the_area_and_the_shape_that_the_paper_wants(size, largest):
    top, left, height, width = (
        np.asarray(part) for part in jax.vmap(lambda key: draw_box(key, size))(KEYS)
    )
    area, ratio = height * width / (size[0] * size[1]), width / height
    assert top.min() >= -1e-4 and left.min() >= -1e-4
    assert (top + height).max() <= size[0] + 1e-4 and (left + width).max() <= size[1] + 1e-4
    assert area.min() >= 0.08 - 1e-5 and area.max() <= largest + 1e-5
    assert ratio.min() >= 3 / 4 - 1e-5 and ratio.max() <= 4 / 3 + 1e-5
    spread = (largest - 0.08) / np.sqrt(12 * len(KEYS))
    assert abs(area.mean() - (0.08 + largest) / 2) < 4 * spread


def test_small_boxes_lie_anywhere_and_have_any_shape():
    top, left, height, width = (
        np.asarray(part) for part in jax.vmap(lambda key: draw_box(key, (64, 64)))(KEYS)
    )
    small = height * width < 0.5 * 64 * 64
    shares = np.array(
        [top / (64 - height), left / (64 - width), (np.log(width / height) / np.log(4 / 3) + 1) / 2]
    )[:, small]
    assert np.abs(shares.mean(1) - 0.5).max() < 4 / np.sqrt(12 * small.sum())
    assert shares.min() < 0.01 and shares.max() > 0.99


def test_a_very_long_image_has_boxes_too():
    box = draw_box(KEYS[0], (2, 100))
    assert 0 < box.width <= 4 / 3 * box.height + 1e-4 and box.height <= 2 + 1e-4


def test_resized_crop_has_the_size_wanted_and_the_colours_of_its_box():
    ramp = jnp.broadcast_to(jnp.arange(32.0)[:, None, None], (32, 32, 1))
    box, found = draw_box(KEYS[1], (32, 32)), resized_crop(ramp, KEYS[1], (8, 6))
    assert found.shape == (8, 6, 1)
    np.testing.assert_allclose(found[3:5].mean(), box.top + box.height / 2 - 0.5, rtol=1e-5)
