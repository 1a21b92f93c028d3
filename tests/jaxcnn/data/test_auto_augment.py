"""Operations of RandAugment and TrivialAugment, compared with Pillow and with torchvision."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from jaxcnn.data.auto_augment import (
    OPERATIONS,
    STRENGTHS,
    Ranges,
    apply_operation,
    magnitudes,
    randaugment,
    trivialaugment,
)
from jaxcnn.data.tones import auto_contrast, equalize
from jaxcnn.errors import InputError
from tests.support.native import run_program_for_a_gpu

KEYS = jax.random.split(jax.random.key(0), 600)
RNG = np.random.default_rng(0)
# A dark gradient with noise: levels are unevenly used, and some never.
PIXELS = np.clip(
    np.linspace(20, 160, 24 * 30).reshape(24, 30, 1) + RNG.normal(0, 20, (24, 30, 3)), 5, 190
).astype(np.uint8)
BLENDS = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}
RANDAUGMENT = Ranges(0.3, (150 / 331 * 24, 150 / 331 * 30), 30.0, 0.9, 4)
TRIVIALAUGMENT = Ranges(0.99, (32.0, 32.0), 135.0, 0.99, 6)


@functools.cache
def compiled():
    return jax.jit(apply_operation)


def apply(name: str, magnitude: float, pixels: np.ndarray = PIXELS) -> np.ndarray:
    """The result in gray levels, ``f32[H, W, C]``."""
    image = jnp.array(pixels, jnp.float32) / 255
    index = jnp.int32(OPERATIONS.index(name))
    return 255 * np.asarray(compiled()(image, index, jnp.float32(magnitude)))


def pillow(name: str, magnitude: float) -> np.ndarray:
    """The result of Pillow, ``f32[H, W, C]``."""
    image = Image.fromarray(PIXELS)
    if name in BLENDS:
        result = BLENDS[name](image).enhance(1 + magnitude)
    elif name == "posterize":
        result = ImageOps.posterize(image, int(magnitude))
    elif name == "solarize":
        result = ImageOps.solarize(image, math.ceil(magnitude))
    elif name == "auto_contrast":
        result = ImageOps.autocontrast(image)
    elif name == "equalize":
        result = ImageOps.equalize(image)
    else:
        result = image
    return np.asarray(result, np.float32)


@pytest.mark.parametrize(
    ("name", "magnitude"),
    [
        *[(name, m) for name in BLENDS for m in (-0.9, 0.4, 0.99)],
        *[("posterize", bits) for bits in (8, 5, 2)],
        *[("solarize", level) for level in (0.0, 76.5, 119.0, 255.0)],
        ("auto_contrast", 0.0),
        ("equalize", 0.0),
        ("identity", 0.0),
    ],
)
def test_colors_are_those_of_pillow(name, magnitude):
    # Pillow rounds results, and the image or the mean that it blends with.
    tolerance = 2.01 if name in BLENDS else 1.01 if name == "auto_contrast" else 0.01
    np.testing.assert_allclose(apply(name, magnitude), pillow(name, magnitude), atol=tolerance)


@pytest.mark.parametrize("channels", [1, 3])
def test_equalize_in_a_program_for_a_gpu_agrees_with_pillow(channels):
    images = np.stack([PIXELS, PIXELS // 16, np.full_like(PIXELS, 70)])[..., :channels]
    result = run_program_for_a_gpu(jax.vmap(equalize), jnp.asarray(images, jnp.float32) / 255)
    for image, equalized in zip(images, np.asarray(result), strict=True):
        expected = ImageOps.equalize(Image.fromarray(image.squeeze()))
        levels = np.asarray(expected).reshape(image.shape)
        np.testing.assert_allclose(255 * equalized, levels, atol=0.01)


def moved(source) -> np.ndarray:
    """The image whose pixel (row, column) is that at ``source(row, column)``, black outside."""
    result = np.zeros_like(PIXELS)
    for row in range(24):
        for column in range(30):
            i, j = (round(position) for position in source(row, column))
            if 0 <= i < 24 and 0 <= j < 30:
                result[row, column] = PIXELS[i, j]
    return result.astype(np.float32)


@pytest.mark.parametrize("sign", [-1, 1])
def test_pixels_move_as_written_out_by_hand(sign):
    cases = {
        ("translate_x", 7.0): lambda i, j: (i, j - sign * 7),
        ("translate_y", 3.0): lambda i, j: (i - sign * 3, j),
        ("shear_x", 0.31): lambda i, j: (i, j + sign * 0.31 * (i + 0.5)),
        ("shear_y", 0.31): lambda i, j: (i + sign * 0.31 * (j + 0.5), j),
        ("rotate", 17.0): lambda i, j: (
            11.5 + sign * math.sin(math.radians(17)) * (j - 14.5) + 0.9563048 * (i - 11.5),
            14.5 + 0.9563048 * (j - 14.5) - sign * math.sin(math.radians(17)) * (i - 11.5),
        ),
    }
    for (name, magnitude), source in cases.items():
        result = apply(name, sign * magnitude)
        np.testing.assert_allclose(result, moved(source), atol=1e-3, err_msg=name)


def test_a_quarter_turn_is_that_of_numpy():
    square = PIXELS[:24, :24]
    np.testing.assert_allclose(apply("rotate", 90.0, square), np.rot90(square), atol=1e-3)


def test_gray_images_have_no_color():
    gray = PIXELS[..., :1]
    np.testing.assert_allclose(apply("color", 0.9, gray), gray, atol=1e-3)
    for name in OPERATIONS:
        assert apply(name, 3.0, gray).shape == gray.shape


def test_flat_channels_are_unchanged():
    flat = jnp.full((6, 6, 3), 0.3)
    np.testing.assert_allclose(auto_contrast(flat), 0.3, rtol=1e-6)
    np.testing.assert_allclose(equalize(flat), 0.3, rtol=1e-6)


def test_magnitudes_by_hand():
    table = dict(zip(OPERATIONS, np.swapaxes(magnitudes(RANDAUGMENT), 0, 1), strict=True))
    assert table["identity"].shape == (2, STRENGTHS)
    np.testing.assert_allclose(table["shear_x"][:, 9], [0.09, -0.09], rtol=1e-6)
    np.testing.assert_allclose(table["translate_x"][:, 30], [13, -13])  # 150 / 331 · 30 = 13.6
    np.testing.assert_allclose(table["translate_y"][:, 9], [3, -3])  # 0.3 · 10.9
    np.testing.assert_allclose(table["rotate"][:, 9], [9, -9])
    np.testing.assert_allclose(table["sharpness"][:, 9], [0.27, -0.27], rtol=1e-6)
    np.testing.assert_allclose(table["posterize"][:, [0, 9, 30]], [[8, 7, 4]] * 2)
    np.testing.assert_allclose(table["solarize"][:, [0, 9, 30]], [[255, 178.5, 0]] * 2)


def test_randaugment_applies_each_operation_as_often():
    """An image whose result is different for each operation; two standard deviations and more."""
    pixels = jnp.array(PIXELS, jnp.float32) / 255
    results = np.asarray(jax.jit(jax.vmap(lambda k: randaugment(pixels, k, 1, 12)))(KEYS))
    table, counts = magnitudes(RANDAUGMENT), []
    for index, name in enumerate(OPERATIONS):
        expected = np.stack([apply(name, table[sign, index, 12]) for sign in (0, 1)]) / 255
        distance = np.abs(results[:, None] - expected[None]).max((2, 3, 4))
        counts.append(int((distance.min(1) < 1e-4).sum()))
    assert sum(counts) == len(KEYS)
    assert min(counts) >= 20 and max(counts) <= 72  # 43 each, standard deviation 6.3


def test_randaugment_applies_as_many_operations_as_named():
    pixels = jnp.array(PIXELS, jnp.float32) / 255
    changed = []
    for operations in (1, 3):
        augment = functools.partial(randaugment, operations=operations, strength=20)
        results = jax.jit(jax.vmap(augment, (None, 0)))(pixels, KEYS)
        assert float(results.min()) >= 0 and float(results.max()) <= 1
        changed.append(float((jnp.abs(results - pixels).max((1, 2, 3)) > 1e-4).mean()))
    assert changed[0] == pytest.approx(13 / 14, abs=0.04)  # all but the identity
    assert changed[1] > 0.985


def test_trivialaugment_draws_its_strength():
    pixels = jnp.array(PIXELS, jnp.float32) / 255
    results = np.asarray(jax.jit(jax.vmap(trivialaugment, (None, 0)))(pixels, KEYS))
    distinct = len(np.unique(results.round(3), axis=0))
    assert distinct > 200  # 9 operations of two directions, two of one, and three without strength


def test_images_of_two_channels_are_refused():
    with pytest.raises(InputError, match="need gray or RGB images: these have 2 channels"):
        trivialaugment(jnp.zeros((4, 4, 2)), KEYS[0])


@pytest.mark.peers
@pytest.mark.parametrize("wide", [False, True])
def test_every_operation_at_every_strength_is_that_of_torchvision(wide):
    torch = pytest.importorskip("torch")
    autoaugment = pytest.importorskip("torchvision.transforms.autoaugment")
    ranges = TRIVIALAUGMENT if wide else RANDAUGMENT
    if wide:
        space = autoaugment.TrivialAugmentWide()._augmentation_space(STRENGTHS)
    else:
        space = autoaugment.RandAugment()._augmentation_space(STRENGTHS, (24, 30))
    levels = torch.tensor(PIXELS).permute(2, 0, 1)
    nearest = autoaugment.InterpolationMode.NEAREST
    table = magnitudes(ranges)
    for index, (name, (values, signed)) in enumerate(space.items()):
        assert name.lower() == OPERATIONS[index].replace("_", "")
        # Of bytes it rounds; of floats it has no posterization and no equalization.
        scale = 1.0 if name in ("Posterize", "Equalize") else 255.0
        image = levels if scale == 1 else levels / scale
        for strength in (0, 9, 17, 30):
            value = float(values[strength]) if values.ndim else 0.0
            value = -value if signed else value / (scale if name == "Solarize" else 1)
            theirs = scale * autoaugment._apply_op(image, name, value, nearest, None).float()
            ours = apply(OPERATIONS[index], table[1, index, strength])
            differs = np.abs(ours - theirs.permute(1, 2, 0).numpy()).max(-1) > 0.01
            # A position halfway between two pixels may go either way.
            assert differs.mean() < (0.02 if "Shear" in name else 1e-3), name
