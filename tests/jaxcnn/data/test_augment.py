import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.data.augment import (
    AUGMENTATIONS,
    CROPS,
    augmentation,
    crop,
    flip,
    make_preprocess,
    shift,
    standardize_per_image,
)
from jaxcnn.errors import InputError
from tests.support.compiler_options import OPTIMIZED

KEYS = jax.random.split(jax.random.key(0), 200)
# The value of each pixel is its position, row · 10 + column.
NUMBERED = np.arange(8 * 10, dtype=np.uint8).reshape(1, 8, 10, 1)


def test_flip_flips_about_half_of_the_images():
    image = jnp.array([[1.0, 2.0]])[..., None]
    results = [tuple(flip(image, key).ravel().tolist()) for key in KEYS]
    assert set(results) == {(1.0, 2.0), (2.0, 1.0)}
    assert 70 <= results.count((2.0, 1.0)) <= 130  # four standard deviations are 28


def test_shift_moves_by_up_to_an_eighth_each_way_and_pads_with_zeros():
    image = jnp.zeros((16, 8, 1)).at[8, 4, 0].set(1.0)
    positions = {tuple(int(i) for i in np.argwhere(shift(image, key)[..., 0])[0]) for key in KEYS}
    assert positions == {(8 + i, 4 + j) for i in range(-2, 3) for j in range(-1, 2)}
    assert float(shift(jnp.ones((16, 8, 1)), KEYS[0]).min()) == 0.0


def test_evaluation_normalizes_without_augmentation():
    images = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3, 1)
    result = make_preprocess(("flip", "shift"), mean=(0.2,), std=(0.4,))(images, None)
    np.testing.assert_allclose(result.ravel(), [-0.5, 0.0, 2.0], atol=1e-6)


def test_each_example_has_its_own_random_draw():
    images = jnp.tile(jnp.arange(64, dtype=jnp.uint8).reshape(1, 8, 8, 1), (200, 1, 1, 1))
    assert len(np.unique(make_preprocess(("shift",))(images, KEYS), axis=0)) == 9


def test_an_unknown_augmentation_is_an_error_with_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'shift'"):
        make_preprocess(("shfit",))


def test_random_crops_start_at_every_possible_corner():
    image = jnp.array(NUMBERED[0], jnp.float32)
    crops = np.asarray(jax.vmap(lambda key: crop(image, key, (6, 9)))(KEYS))
    rows, columns = np.divmod(crops[:, 0, 0, 0].astype(int), 10)
    assert set(zip(rows, columns, strict=True)) == {(i, j) for i in range(3) for j in range(2)}
    for row, column, result in zip(rows, columns, crops, strict=True):
        np.testing.assert_array_equal(result, image[row : row + 6, column : column + 9])


def test_evaluation_crops_the_center():
    for names in ((), ("flip",), ("crop",), ("resized_crop", "colour")):
        result = make_preprocess(names, size=(5, 6))(jnp.array(NUMBERED), None)
        np.testing.assert_allclose(result * 255, NUMBERED[:, 1:6, 2:8], atol=1e-4)


def test_training_without_a_random_crop_crops_the_center():
    images = jnp.tile(jnp.array(NUMBERED), (200, 1, 1, 1))
    results = np.asarray(make_preprocess(("flip",), size=(4, 4))(images, KEYS)) * 255
    center = np.float32(NUMBERED[0, 2:6, 3:7])
    flipped = np.abs(results - center).max((1, 2, 3)) > 0.5
    np.testing.assert_allclose(
        results[~flipped], np.tile(center, ((~flipped).sum(), 1, 1, 1)), atol=1e-4
    )
    np.testing.assert_allclose(
        results[flipped], np.tile(center[:, ::-1], (flipped.sum(), 1, 1, 1)), atol=1e-4
    )


@pytest.mark.parametrize("size", [None, (8, 10)])
def test_images_of_the_target_size_are_not_cropped(size):
    images = jnp.array(NUMBERED)
    np.testing.assert_array_equal(
        make_preprocess(("crop",), size=size)(images, KEYS[:1]), make_preprocess()(images, None)
    )


def test_a_random_draw_depends_only_on_the_position_in_the_list():
    """An augmentation that is appended to the list leaves the draws of the others unchanged."""
    images = jnp.tile(jnp.array(NUMBERED), (20, 1, 1, 1))
    crop_alone = make_preprocess(("crop",), size=(4, 4))
    crop_first = make_preprocess(("crop", "brightness"), size=(4, 4))
    difference = np.asarray(crop_first(images, KEYS[:20]) - crop_alone(images, KEYS[:20]))
    np.testing.assert_allclose(np.ptp(difference, axis=(1, 2, 3)), 0, atol=1e-6)


def test_images_smaller_than_the_network_input_are_an_error():
    for names, keys in ((("crop",), KEYS[:1]), ((), None)):
        with pytest.raises(
            InputError, match="images of 8×10 are smaller than the network's input of 8×11"
        ):
            jax.jit(make_preprocess(names, size=(8, 11)))(jnp.array(NUMBERED), keys)
    with pytest.raises(InputError, match="image size 0×4"):
        make_preprocess(size=(0, 4))


def test_per_image_standardization_by_hand():
    """Bytes 0, 2, 4 have mean 2 and standard deviation sqrt(8/3).

    Where one value of 48 differs by half a gray level, the standard deviation is below its lower
    limit of 1 / sqrt(48) gray levels.
    """
    images = jnp.array([0, 2, 4, 90, 90, 90], jnp.uint8).reshape(2, 1, 3, 1)
    results = make_preprocess(per_image=True)(images, None)
    np.testing.assert_allclose(results[0].ravel(), np.array([-2, 0, 2]) / np.sqrt(8 / 3), atol=1e-5)
    np.testing.assert_allclose(results[1], 0, atol=1e-4)
    images = jnp.full((1, 4, 4, 3), 7 / 255).at[0, 0, 0, 0].set(7.5 / 255)
    min_std = 1 / np.sqrt(48)  # in gray levels; the actual one is 0.5 sqrt(47) / 48 = 0.071
    np.testing.assert_allclose(
        standardize_per_image(images)[0, 0, 0, 0], (0.5 - 0.5 / 48) / min_std, rtol=1e-4
    )


def test_per_image_standardization_spans_all_channels_and_follows_augmentation():
    images = jnp.array(np.random.default_rng(0).integers(0, 256, (16, 6, 6, 3), np.uint8))
    preprocess = make_preprocess(("crop", "brightness", "contrast"), size=(4, 4), per_image=True)
    results = np.asarray(preprocess(images, KEYS[:16]))
    np.testing.assert_allclose(results.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(results.std((1, 2, 3)), 1, rtol=1e-4)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_examples_are_augmented_differently_and_independently(name):
    images = np.tile(
        np.random.default_rng(0).integers(0, 256, (1, 12, 14, 3), np.uint8), (8, 1, 1, 1)
    )
    preprocess = jax.jit(make_preprocess((name,), size=(8, 8)))
    results = np.asarray(preprocess(images, KEYS[:8]))
    assert results.shape == (8, 8, 8, 3) and results.dtype == np.float32
    min_distinct = 2 if name == "flip" else 4  # there are 9 shifts, 35 crops
    assert len(np.unique(results, axis=0)) >= min_distinct
    images[1:] = 0
    np.testing.assert_allclose(preprocess(images, KEYS[:8])[0], results[0], atol=1e-6)


# Apart from the others: the hue of a pixel that is almost gray, and gray levels, turn a small
# difference into a large one.
APART = ("mirror_shift", "randaugment", "trivialaugment", "random_erasing")
LISTS = {
    "smooth": (*(name for name in AUGMENTATIONS if name not in (*CROPS, *APART)), *CROPS),
    "mirrored": ("mirror_shift",),
    "trivialaugment": ("flip", "trivialaugment", "random_erasing"),
    "randaugment": ("randaugment",),
}


@pytest.mark.parametrize("names", LISTS.values(), ids=LISTS)
def test_sharded_images_are_augmented_without_communication(devices, names):
    """The results equal those on one device, and the program has no collective operations."""
    images = np.random.default_rng(0).integers(0, 256, (16, 20, 20, 3), np.uint8)
    # Without XLA's fusion emitters, the program for one device computes other colors.
    preprocess = jax.jit(
        make_preprocess(names, size=(12, 12), per_image=True), compiler_options=OPTIMIZED
    )
    by_row = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    sharded = jax.device_put(images, by_row), jax.device_put(KEYS[:16], by_row)
    program = preprocess.lower(*sharded).compile()
    for operation in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert operation not in program.as_text()
    np.testing.assert_allclose(program(*sharded), preprocess(images, KEYS[:16]), atol=1e-4)


def test_parameters_of_augmentations():
    image = jnp.array(np.random.default_rng(0).random((16, 16, 3)), jnp.float32)
    erasing = jax.jit(jax.vmap(augmentation("random_erasing:0.25"), (None, 0)))(image, KEYS)
    changed = int((erasing != image).any((1, 2, 3)).sum())
    assert 25 <= changed <= 75  # of 200; four standard deviations are 24
    unchanged = jax.jit(jax.vmap(augmentation("randaugment:1:0"), (None, 0)))(image, KEYS[:40])
    moved = jnp.abs(unchanged - image).max((1, 2, 3)) > 1 / 255
    assert 0 < int(moved.sum()) <= 16  # at strength 0 only contrast and tones change an image


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("randaugment:0:9", "'randaugment:0:9': there must be 1 to 10 operations"),
        ("randaugment:2:31", "of a strength from 0 to 30"),
        (
            "randaugment:2",
            "unknown augmentation 'randaugment:2': .*randaugment:OPERATIONS:STRENGTH",
        ),
        ("randaugment:2:-1", "unknown augmentation"),
        ("random_erasing:1.5", "'random_erasing:1.5': the probability must be from 0 to 1"),
        ("random_erasing:x", "unknown augmentation .*random_erasing:PROBABILITY"),
        ("flip:2", "unknown augmentation 'flip:2': did you mean 'flip'"),
    ],
)
def test_parameters_that_are_not_allowed(name, message):
    with pytest.raises(InputError, match=message):
        make_preprocess((name,))


@pytest.mark.parametrize("name", ["flip", "contrast", "randaugment", "trivialaugment"])
def test_wide_numbers_do_not_widen_images(name):
    images = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        keys = jax.random.split(jax.random.key(0), 2)
        prepared = jax.eval_shape(make_preprocess((name,)), images, keys)
        assert prepared.dtype == np.float32


def test_floats_are_taken_as_0_to_1_and_other_integers_are_refused():
    images = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
    preprocess = make_preprocess(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    expected = (images / 255 - np.array([0.1, 0.2, 0.3])) / np.array([0.5, 0.6, 0.7])
    np.testing.assert_allclose(preprocess(jnp.asarray(images), None), expected, atol=1e-6)
    floats = jnp.asarray(images, jnp.float32) / 255
    np.testing.assert_allclose(preprocess(floats, None), expected, atol=1e-6)
    with pytest.raises(InputError, match="images of dtype int32: give bytes"):
        preprocess(jnp.asarray(images, jnp.int32), None)


@pytest.mark.parametrize("name", ["mean", "std"])
def test_statistics_of_another_number_of_channels_are_refused(name):
    preprocess = make_preprocess(**{name: (0.1, 0.2, 0.3)})
    with pytest.raises(InputError, match=f"{name} .*: give one number, or one for each of the 1 "):
        preprocess(jnp.ones((1, 4, 4, 1)), None)


@pytest.mark.parametrize("name", ["alternating_flip", "randaugment:OPERATIONS:STRENGTH"])
def test_names_that_are_no_function_of_one_image_are_refused(name):
    with pytest.raises(InputError, match=f"augmentation '{name}' is not a function of one image"):
        augmentation(name)
