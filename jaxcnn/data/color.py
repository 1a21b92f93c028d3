"""Random changes of an image's colors, the same for all its pixels: ``f32[H, W, C]`` in 0 … 1."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import InputError

# The TensorFlow tutorial on CIFAR-10, cifar10_input.distorted_inputs
MAX_BRIGHTNESS_DELTA = 63 / 255  # each way
CONTRAST_RANGE = (0.2, 1.8)

# Redmon & Farhadi 2017, "YOLO9000", §3, and its darknet19.cfg: hue=.1, saturation=.75, exposure=.75
MAX_HUE_SHIFT = 0.1  # of the color circle, each way
MIN_SATURATION_FACTOR = 0.75  # see `random_factor`
MIN_EXPOSURE_FACTOR = 0.75  # see `random_factor`

# Krizhevsky et al. 2012, §4.1: the principal components of ImageNet's colors in 0 … 1, as
# published in fb.resnet.torch.
LIGHTING_STD = 0.1  # of a component, in units of its eigenvalue
EIGENVALUES = (0.2175, 0.0188, 0.0045)
EIGENVECTORS = (  # rows: red, green, blue; each column is an eigenvector
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


def brightness(image: Array, key: Array) -> Array:
    """Adds a random offset of up to ±63/255 to all pixels, without clipping, ``f32[H, W, C]``.

    Source: the TensorFlow tutorial on CIFAR-10,
    ``tf.image.random_brightness(image, max_delta=63)``.
    """
    return image + jax.random.uniform(
        key, minval=-MAX_BRIGHTNESS_DELTA, maxval=MAX_BRIGHTNESS_DELTA
    )


def contrast(image: Array, key: Array) -> Array:
    """Scales each channel about its mean by a factor uniform in 0.2 … 1.8, without clipping.

    ``(image - mean) · factor + mean``, ``f32[H, W, C]``.

    Source: the TensorFlow tutorial on CIFAR-10,
    ``tf.image.random_contrast(image, lower=0.2, upper=1.8)``.
    """
    low, high = CONTRAST_RANGE
    mean = image.mean((0, 1))
    return (image - mean) * jax.random.uniform(key, minval=low, maxval=high) + mean


def rgb_to_hsv(image: Array) -> Array:
    """Hue, saturation and value, each in 0 … 1, as `colorsys` computes them.

    Args:
      image: ``f32[..., 3]``, red, green and blue in 0 … 1.

    Returns:
      ``f32[..., 3]``.

    >>> rgb_to_hsv(jnp.array([0.0, 0.5, 0.0])).round(3).tolist()
    [0.3330000042915344, 1.0, 0.5]
    """
    red, green, blue = jnp.moveaxis(image, -1, 0)
    value = image.max(-1)
    chroma = value - image.min(-1)
    divisor = jnp.where(chroma == 0, 1.0, chroma)
    hue_by_maximum = [
        (green - blue) / divisor,
        2 + (blue - red) / divisor,
        4 + (red - green) / divisor,
    ]
    sixths = jnp.select([value == red, value == green], hue_by_maximum[:2], hue_by_maximum[2])
    saturation = chroma / jnp.where(value == 0, 1.0, value)
    return jnp.stack([_fractional_part(sixths / 6), saturation, value], -1)


def hsv_to_rgb(image: Array) -> Array:
    """Red, green and blue in 0 … 1; the inverse of `rgb_to_hsv`.

    Args:
      image: ``f32[..., 3]``: hue, of which only the fractional part counts, saturation and value.

    Returns:
      ``f32[..., 3]``.

    >>> hsv_to_rgb(jnp.array([-1.0, 0.5, 1.0])).tolist()
    [1.0, 0.5, 0.5]
    """
    hue, saturation, value = jnp.moveaxis(image[..., None, :], -1, 0)
    sixths = 6 * _fractional_part(hue + jnp.array([5.0, 3.0, 1.0]) / 6)
    return value * (1 - saturation * jnp.clip(jnp.minimum(sixths, 4 - sixths), 0, 1))


def _fractional_part(values: Array) -> Array:
    return values - jnp.floor(values)  # several times as fast as a remainder under XLA:CPU


def adjust_hsv(
    image: Array, hue: Array | float, saturation: Array | float, exposure: Array | float
) -> Array:
    """Shifts the hue, scales saturation and value, and clips the result to 0 … 1.

    Args:
      image: ``f32[H, W, C]`` with 1 or 3 channels; a gray image has only a value.
      hue: shift, as a fraction of the color circle.
      saturation: factor.
      exposure: factor of the value.

    Returns:
      ``f32[H, W, C]``.
    """
    if image.shape[-1] == 1:
        return jnp.clip(image * exposure, 0, 1)
    hsv = rgb_to_hsv(image)
    adjusted = jnp.stack([hsv[..., 0] + hue, hsv[..., 1] * saturation, hsv[..., 2] * exposure], -1)
    return jnp.clip(hsv_to_rgb(adjusted), 0, 1)


def random_factor(key: Array, low: float) -> Array:
    """A factor uniform in `low` … 1 or, with probability one half, the reciprocal of such a factor.

    Source: ``rand_scale`` in Darknet.
    """
    factor_key, reciprocal_key = jax.random.split(key)
    factor = jax.random.uniform(factor_key, minval=low, maxval=1.0)
    return jnp.where(jax.random.bernoulli(reciprocal_key), factor, 1 / factor)


def hsv_jitter(image: Array, key: Array) -> Array:
    """Random hue (± a tenth of the color circle), saturation and exposure (0.75 … 1.33).

    Source: Redmon & Farhadi 2017, "YOLO9000", §3; ``random_distort_image`` in Darknet.

    Args:
      image: ``f32[H, W, C]`` in 0 … 1 with 1 or 3 channels.
      key: random key.

    Returns:
      ``f32[H, W, C]``, clipped to 0 … 1.
    """
    hue_key, saturation_key, exposure_key = jax.random.split(key, 3)
    hue = jax.random.uniform(hue_key, minval=-MAX_HUE_SHIFT, maxval=MAX_HUE_SHIFT)
    saturation = random_factor(saturation_key, MIN_SATURATION_FACTOR)
    exposure = random_factor(exposure_key, MIN_EXPOSURE_FACTOR)
    return adjust_hsv(image, hue, saturation, exposure)


def lighting(image: Array, key: Array) -> Array:
    """Adds a random color along the principal components of ImageNet's colors, without clipping.

    Source: Krizhevsky et al. 2012, "ImageNet classification with deep convolutional neural
    networks", §4.1.

    Args:
      image: ``f32[H, W, 3]`` in 0 … 1.
      key: random key.

    Returns:
      ``f32[H, W, 3]``.

    Raises:
      InputError: the image is not RGB.
    """
    if image.shape[-1] != 3:
        raise InputError(
            "augmentation 'lighting' needs RGB images: "
            f"these have {image.shape[-1]} channel(s); remove it from the augmentations"
        )
    amounts = LIGHTING_STD * jax.random.normal(key, (3,)) * jnp.array(EIGENVALUES)
    # Not a matrix product, which some devices compute with fewer bits.
    return image + jnp.sum(jnp.array(EIGENVECTORS) * amounts, axis=1)
