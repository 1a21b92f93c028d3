import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.data.augment import (
    AUGMENTATIONS,
    CROPS,
    crop,
    flip,
    make_preprocess,
    shift,
    standardise_each,
)
from jaxcnn.errors import InputError

KEYS = jax.random.split(jax.random.key(0), 200)


def test_flip_turns_about_half_of_the_images():
    image = jnp.array([[1.0, 2.0]])[..., None]
    turned = [tuple(flip(image, key).ravel().tolist()) for key in KEYS]
    assert set(turned) == {(1.0, 2.0), (2.0, 1.0)}
    assert 70 <= turned.count((2.0, 1.0)) <= 130  # four standard deviations are 28


def test_shift_moves_by_up_to_an_eighth_each_way_and_zeros_move_in():
    image = jnp.zeros((16, 8, 1)).at[8, 4, 0].set(1.0)
    places = {tuple(int(i) for i in np.argwhere(shift(image, key)[..., 0])[0]) for key in KEYS}
    assert places == {(8 + i, 4 + j) for i in range(-2, 3) for j in range(-1, 2)}
    assert float(shift(jnp.ones((16, 8, 1)), KEYS[0]).min()) == 0.0


def test_evaluation_is_not_augmented_but_normalised():
    images = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3, 1)
    prepared = make_preprocess(("flip", "shift"), mean=(0.2,), std=(0.4,))(images, None)
    np.testing.assert_allclose(prepared.ravel(), [-0.5, 0.0, 2.0], atol=1e-6)


def test_examples_are_drawn_independently():
    images = jnp.tile(jnp.arange(64, dtype=jnp.uint8).reshape(1, 8, 8, 1), (200, 1, 1, 1))
    assert len(np.unique(make_preprocess(("shift",))(images, KEYS), axis=0)) == 9


def test_an_unknown_augmentation_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'shift'"):
        make_preprocess(("shfit",))


PLACES = np.arange(8 * 10, dtype=np.uint8).reshape(1, 8, 10, 1)  # every pixel says where it is from


def test_crops_start_at_every_corner_that_there_is_room_for():
    image = jnp.array(PLACES[0], jnp.float32)
    found = np.asarray(jax.vmap(lambda key: crop(image, key, (6, 9)))(KEYS))
    rows, columns = np.divmod(found[:, 0, 0, 0].astype(int), 10)
    assert set(zip(rows, columns, strict=True)) == {(i, j) for i in range(3) for j in range(2)}
    for row, column, part in zip(rows, columns, found, strict=True):
        np.testing.assert_array_equal(part, image[row : row + 6, column : column + 9])


def test_evaluation_takes_the_middle():
    for names in ((), ("flip",), ("crop",), ("resized_crop", "colour")):
        found = make_preprocess(names, size=(5, 6))(jnp.array(PLACES), None)
        np.testing.assert_allclose(found * 255, PLACES[:, 1:6, 2:8], atol=1e-4)


def test_training_without_a_crop_takes_the_middle_too():
    images = jnp.tile(jnp.array(PLACES), (200, 1, 1, 1))
    found = np.asarray(make_preprocess(("flip",), size=(4, 4))(images, KEYS)) * 255
    middle = np.float32(PLACES[0, 2:6, 3:7])
    turned = np.abs(found - middle).max((1, 2, 3)) > 0.5
    np.testing.assert_allclose(
        found[~turned], np.tile(middle, ((~turned).sum(), 1, 1, 1)), atol=1e-4
    )
    np.testing.assert_allclose(
        found[turned], np.tile(middle[:, ::-1], (turned.sum(), 1, 1, 1)), atol=1e-4
    )


@pytest.mark.parametrize("size", [None, (8, 10)])
def test_images_of_the_size_wanted_are_not_cropped(size):
    images = jnp.array(PLACES)
    np.testing.assert_array_equal(
        make_preprocess(("crop",), size=size)(images, KEYS[:1]), make_preprocess()(images, None)
    )


def test_a_draw_hangs_on_the_place_in_the_list_alone():
    images = jnp.tile(jnp.array(PLACES), (20, 1, 1, 1))
    alone, behind = (
        make_preprocess(("crop",), size=(4, 4)),
        make_preprocess(("crop", "brightness"), size=(4, 4)),
    )
    difference = np.asarray(behind(images, KEYS[:20]) - alone(images, KEYS[:20]))
    np.testing.assert_allclose(np.ptp(difference, axis=(1, 2, 3)), 0, atol=1e-6)


def test_images_smaller_than_the_network_wants_are_refused():
    for names, keys in ((("crop",), KEYS[:1]), ((), None)):
        with pytest.raises(
            InputError, match="images of 8×10 are smaller than the 8×11 that the network wants"
        ):
            jax.jit(make_preprocess(names, size=(8, 11)))(jnp.array(PLACES), keys)
    with pytest.raises(InputError, match="image size 0×4"):
        make_preprocess(size=(0, 4))


def test_every_image_to_its_own_mean_and_deviation():
    """Bytes 0, 2, 4: mean 2, deviation sqrt(8/3). A single grey level among many stays below 1/sqrt(pixels): it is the floor."""
    found = make_preprocess(per_image=True)(
        jnp.array([0, 2, 4, 90, 90, 90], jnp.uint8).reshape(2, 1, 3, 1), None
    )
    np.testing.assert_allclose(found[0].ravel(), np.array([-2, 0, 2]) / np.sqrt(8 / 3), atol=1e-5)
    np.testing.assert_allclose(found[1], 0, atol=1e-4)
    images = jnp.full((1, 4, 4, 3), 7 / 255).at[0, 0, 0, 0].set(7.5 / 255)
    floor = 1 / np.sqrt(48)  # in grey levels; the deviation is 0.5 sqrt(47) / 48 = 0.071
    np.testing.assert_allclose(
        standardise_each(images)[0, 0, 0, 0], (0.5 - 0.5 / 48) / floor, rtol=1e-4
    )


def test_every_image_by_itself_over_all_channels_after_augmentation():
    images = jnp.array(np.random.default_rng(0).integers(0, 256, (16, 6, 6, 3), np.uint8))
    found = np.asarray(
        make_preprocess(("crop", "brightness", "contrast"), size=(4, 4), per_image=True)(
            images, KEYS[:16]
        )
    )
    np.testing.assert_allclose(found.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(found.std((1, 2, 3)), 1, rtol=1e-4)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_examples_differ_and_none_hangs_on_its_neighbours(name):
    images = np.tile(
        np.random.default_rng(0).integers(0, 256, (1, 12, 14, 3), np.uint8), (8, 1, 1, 1)
    )
    augmented = jax.jit(make_preprocess((name,), size=(8, 8)))
    found = np.asarray(augmented(images, KEYS[:8]))
    assert found.shape == (8, 8, 8, 3) and found.dtype == np.float32
    assert len(np.unique(found, axis=0)) >= (
        2 if name == "flip" else 4
    )  # there are 9 shifts, 35 crops
    images[1:] = 0
    np.testing.assert_allclose(augmented(images, KEYS[:8])[0], found[0], atol=1e-6)


def test_every_device_augments_its_own_rows_and_no_others(devices):
    """The same images as on one device, and nothing is sent between devices."""
    images = np.random.default_rng(0).integers(0, 256, (16, 20, 20, 3), np.uint8)
    names = (*(name for name in AUGMENTATIONS if name not in CROPS), *CROPS)
    augmented = jax.jit(make_preprocess(names, size=(12, 12), per_image=True))
    rows = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    spread = jax.device_put(images, rows), jax.device_put(KEYS[:16], rows)
    program = augmented.lower(*spread).compile()
    for operation in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert operation not in program.as_text()
    np.testing.assert_allclose(program(*spread), augmented(images, KEYS[:16]), atol=1e-4)
