"""Changes of an image's tones, as Pillow's ``ImageOps`` has them: ``f32[H, W, C]`` in 0 … 1."""

import jax.numpy as jnp
from jax import Array

LEVELS = 256  # of a byte


def posterize(image: Array, bits: Array | int) -> Array:
    """Keeps the highest `bits` of the eight bits of each value.

    >>> (255 * posterize(jnp.array([[[200 / 255]]]), 2)).round().item()
    192.0
    """
    dropped = 8 - bits
    return (_levels(image) >> dropped << dropped).astype(jnp.float32) / 255


def solarize(image: Array, threshold: Array | float) -> Array:
    """Inverts values from `threshold` on, a gray level in 0 … 255.

    >>> solarize(jnp.array([[[0.25, 0.75]]]), 128.0).ravel().tolist()
    [0.25, 0.25]
    """
    # A quarter of a level less, because thresholds are whole or half levels and values are rounded.
    return jnp.where(255 * image >= threshold - 0.25, 1 - image, image)


def auto_contrast(image: Array) -> Array:
    """Scales each channel so that its values go from 0 to 1; a channel of one value is unchanged.

    >>> auto_contrast(jnp.array([[[0.2], [0.3], [0.4]]])).ravel().round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    low, high = image.min((0, 1)), image.max((0, 1))
    is_flat = high == low
    scaled = (image - low) / jnp.where(is_flat, 1, high - low)
    return jnp.where(is_flat, image, jnp.clip(scaled, 0, 1))


def equalize(image: Array) -> Array:
    """Maps the levels of each channel so that their histogram becomes as even as possible."""
    levels, channels = _levels(image), image.shape[-1]
    channel = jnp.broadcast_to(jnp.arange(channels), levels.shape)
    counts = jnp.zeros((LEVELS, channels), jnp.int32).at[levels, channel].add(1)
    highest = jnp.take_along_axis(counts, levels.max((0, 1))[None], axis=0)[0]
    step = (image.shape[0] * image.shape[1] - highest) // 255
    below = jnp.cumsum(counts, axis=0) - counts
    table = jnp.clip((below + step // 2) // jnp.maximum(step, 1), 0, 255)
    return jnp.where(step == 0, image, table[levels, channel].astype(jnp.float32) / 255)


def _levels(image: Array) -> Array:
    """The nearest of 256 gray levels, ``i32[H, W, C]``."""
    return jnp.round(255 * jnp.clip(image, 0, 1)).astype(jnp.int32)
