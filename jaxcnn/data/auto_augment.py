"""RandAugment and TrivialAugment: random operations from one list, with strengths from one table.

A compiled program for many images cannot choose an operation for each: `jax.lax.switch` under
`jax.vmap` computes all of them. So similar operations share their work: the five that move pixels
are one affine map, the four that blend with another image are one blend, and the rest are cheap.

Cubuk et al. 2020, *RandAugment*, §3 and appendix; Müller & Hutter 2021, *TrivialAugment*, §3. The
strengths, black outside of the image and the nearest pixel inside are those of torchvision's
``RandAugment`` and ``TrivialAugmentWide``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.data.tones import auto_contrast, equalize, posterize, solarize
from jaxcnn.errors import InputError

OPERATIONS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "auto_contrast",
    "equalize",
)
STRENGTHS = 31  # entries of a row of the table, from no change to the strongest
GRAY = (0.2989, 0.587, 0.114)  # ITU-R 601, as torchvision rounds it


class Ranges(NamedTuple):
    """The greatest magnitudes of the operations.

    Attributes:
      shear: pixels per row or column.
      translation: pixels, of rows and of columns.
      rotation: degrees.
      blend: distance of a blend's factor from 1.
      posterization: bits that are dropped.
    """

    shear: float
    translation: tuple[float, float]
    rotation: float
    blend: float
    posterization: int


def randaugment(image: Array, key: Array, operations: int = 2, strength: int = 9) -> Array:
    """Applies random operations in turn, all with the same strength, ``f32[H, W, C]``.

    Args:
      image: ``f32[H, W, C]`` in 0 … 1 with 1 or 3 channels.
      key: random key.
      operations: how many are applied; one may be drawn twice.
      strength: 0 to 30.

    Source: Cubuk et al. 2020, *RandAugment*, §3.
    """
    height, width = image.shape[:2]
    ranges = Ranges(0.3, (150 / 331 * height, 150 / 331 * width), 30.0, 0.9, 4)
    keys = jax.random.split(key, operations)
    # A loop, as in a chain of operations the compiler would compute the first ones several times.
    return lax.fori_loop(
        0, operations, lambda i, image: _apply_random(image, keys[i], ranges, strength), image
    )


def trivialaugment(image: Array, key: Array) -> Array:
    """Applies one random operation with a random strength, ``f32[H, W, C]``.

    Args:
      image: ``f32[H, W, C]`` in 0 … 1 with 1 or 3 channels.
      key: random key.

    Source: Müller & Hutter 2021, *TrivialAugment*, the wide ranges of §4.
    """
    return _apply_random(image, key, Ranges(0.99, (32.0, 32.0), 135.0, 0.99, 6), None)


def _apply_random(image: Array, key: Array, ranges: Ranges, strength: int | None) -> Array:
    """A random operation in a random direction; the strength is random too if it is None."""
    operation_key, strength_key, sign_key = jax.random.split(key, 3)
    operation = jax.random.randint(operation_key, (), 0, len(OPERATIONS))
    level = jax.random.randint(strength_key, (), 0, STRENGTHS) if strength is None else strength
    direction = jax.random.bernoulli(sign_key).astype(jnp.int32)
    table = jnp.asarray(magnitudes(ranges))
    return apply_operation(image, operation, table[direction, operation, level])


def magnitudes(ranges: Ranges) -> np.ndarray:
    """The magnitudes of both directions by operation and strength, ``f32[2, 14, 31]``.

    Shears are in pixels per row or column, translations in pixels, rotations in degrees. A blend's
    magnitude is added to its factor of 1. Posterization has the bits that are kept, solarization
    the gray level (0 … 255) from which pixels are inverted.

    >>> table = magnitudes(Ranges(0.3, (8.0, 16.0), 30.0, 0.9, 4))
    >>> table[:, OPERATIONS.index("rotate"), 10].tolist()
    [10.0, -10.0]
    """
    shares = np.linspace(0, 1, STRENGTHS)
    signed = {
        "shear_x": ranges.shear * shares,
        "shear_y": ranges.shear * shares,
        "translate_x": np.trunc(ranges.translation[1] * shares),
        "translate_y": np.trunc(ranges.translation[0] * shares),
        "rotate": ranges.rotation * shares,
    }
    signed |= dict.fromkeys(("brightness", "color", "contrast", "sharpness"), ranges.blend * shares)
    unsigned = {
        "posterize": 8 - np.round(ranges.posterization * shares),
        "solarize": 255 * (1 - shares),
    }
    zeros = np.zeros(STRENGTHS)
    forward = [(signed | unsigned).get(name, zeros) for name in OPERATIONS]
    backward = [
        -row if name in signed else row for name, row in zip(OPERATIONS, forward, strict=True)
    ]
    return np.stack([forward, backward]).astype(np.float32)


def apply_operation(image: Array, operation: Array, magnitude: Array) -> Array:
    """Applies the operation of this index in `OPERATIONS`, ``f32[H, W, C]``.

    Args:
      image: ``f32[H, W, C]`` in 0 … 1 with 1 or 3 channels.
      operation: ``i32[]``.
      magnitude: ``f32[]``, in the units of `magnitudes`.

    Raises:
      InputError: the image has another number of channels.
    """
    if image.shape[-1] not in (1, 3):
        raise InputError(
            "randaugment and trivialaugment need gray or RGB images: these have "
            f"{image.shape[-1]} channels"
        )
    image = jnp.clip(image, 0, 1)
    results = {
        "moved": _move(image, operation, magnitude),
        "blended": _blend(image, operation, magnitude),
        "posterize": posterize(image, magnitude.astype(jnp.int32)),
        "solarize": solarize(image, magnitude),
        "auto_contrast": auto_contrast(image),
        "equalize": equalize(image),
    }
    first_blend, first_tone = OPERATIONS.index("brightness"), OPERATIONS.index("posterize")
    result = jnp.where(operation < first_blend, results["moved"], results["blended"])
    for index, name in enumerate(OPERATIONS[first_tone:], first_tone):
        result = jnp.where(operation == index, results[name], result)
    return result


def _move(image: Array, operation: Array, magnitude: Array) -> Array:
    """Shear about the upper left corner, translation, or rotation about the center."""
    height, width = image.shape[:2]
    angle = jnp.deg2rad(magnitude)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(angle), jnp.ones_like(angle)
    # From the center of an output pixel, relative to the image's center, to that of its source:
    # (x of x, x of y, x of 1, y of x, y of y, y of 1)
    maps = [
        (one, zero, zero, zero, one, zero),
        (one, magnitude, magnitude * (height / 2), zero, one, zero),
        (one, zero, zero, magnitude, one, magnitude * (width / 2)),
        (one, zero, -magnitude, zero, one, zero),
        (one, zero, zero, zero, one, -magnitude),
        (cos, -sin, zero, sin, cos, zero),
    ]
    table = jnp.stack([jnp.stack(row) for row in maps])
    a, b, c, d, e, f = table[jnp.minimum(operation, len(maps) - 1)]
    x = (jnp.arange(width).astype(jnp.float32) + (0.5 - width / 2))[None, :]
    y = (jnp.arange(height).astype(jnp.float32) + (0.5 - height / 2))[:, None]
    columns = jnp.round(a * x + b * y + c + (width / 2 - 0.5)).astype(jnp.int32)
    rows = jnp.round(d * x + e * y + f + (height / 2 - 0.5)).astype(jnp.int32)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    pixels = image[jnp.clip(rows, 0, height - 1), jnp.clip(columns, 0, width - 1)]
    return jnp.where(inside[..., None], pixels, 0)


def _blend(image: Array, operation: Array, magnitude: Array) -> Array:
    """Blends with black, the gray image, its mean or the blurred image, by 1 + magnitude."""
    gray = image
    if image.shape[-1] == 3:  # not a matrix product, which some devices compute with fewer bits
        gray = jnp.broadcast_to(
            (image * jnp.array(GRAY, image.dtype)).sum(-1, keepdims=True), image.shape
        )
    others = {
        "brightness": jnp.zeros_like(image),
        "color": gray,
        "contrast": jnp.broadcast_to(gray.mean(), image.shape),
        "sharpness": _blur(image),
    }
    conditions = [operation == OPERATIONS.index(name) for name in others]
    other = jnp.select(conditions, list(others.values()), image)
    return jnp.clip(other + (1 + magnitude) * (image - other), 0, 1)


def _blur(image: Array) -> Array:
    """The weighted mean of a pixel, five times, and its neighbors; borders stay as they are."""
    height, width = image.shape[:2]
    padded = jnp.pad(image, [(1, 1), (1, 1), (0, 0)])
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    neighbors = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    row, column = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    is_inner = (row > 0) & (row < height - 1) & (column > 0) & (column < width - 1)
    return jnp.where(is_inner, (neighbors + 4 * image) / 13, image)
