"""Changes of an image's colours, the same for all its pixels: of images in 0 … 1, ``f32[H, W, C]``."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import InputError

# The TensorFlow tutorial on CIFAR-10, cifar10_input.distorted_inputs
BRIGHTNESS = 63 / 255  # each way
CONTRAST = (0.2, 1.8)

# Redmon & Farhadi 2017, "YOLO9000", §3, and its darknet19.cfg: hue=.1, saturation=.75, exposure=.75
HUE = 0.1  # of the circle, each way
SATURATION = 0.75  # a factor between this and 1, or 1 over such a factor
EXPOSURE = 0.75  # likewise

# Krizhevsky et al. 2012, §4.1: principal components of ImageNet's colours in 0 … 1, as fb.resnet.torch publishes them
LIGHTING = 0.1  # standard deviation of a component, in eigenvalues
EIGENVALUES = (0.2175, 0.0188, 0.0045)
EIGENVECTORS = (  # rows: red, green, blue; a column an eigenvector
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


def brightness(image: Array, key: Array) -> Array:
    """Up to 63 of 255 added or taken away, the same everywhere; not clipped.

    Source: the TensorFlow tutorial on CIFAR-10, ``tf.image.random_brightness(image, max_delta=63)``.
    """
    return image + jax.random.uniform(key, minval=-BRIGHTNESS, maxval=BRIGHTNESS)


def contrast(image: Array, key: Array) -> Array:
    """``(image - mean) · factor + mean``, the mean that of each channel, the factor uniform in 0.2 … 1.8; not clipped.

    Source: the TensorFlow tutorial on CIFAR-10, ``tf.image.random_contrast(image, lower=0.2, upper=1.8)``.
    """
    mean = image.mean((0, 1))
    return (image - mean) * jax.random.uniform(key, minval=CONTRAST[0], maxval=CONTRAST[1]) + mean


def rgb_to_hsv(image: Array) -> Array:
    """Hue, saturation and value, ``f32[..., 3]``, each in 0 … 1, as `colorsys` has them.

    >>> rgb_to_hsv(jnp.array([0.0, 0.5, 0.0])).round(3).tolist()
    [0.3330000042915344, 1.0, 0.5]
    """
    red, green, blue = jnp.moveaxis(image, -1, 0)
    value = image.max(-1)
    chroma = value - image.min(-1)
    divisor = jnp.where(chroma == 0, 1.0, chroma)
    differences = [
        (green - blue) / divisor,
        2 + (blue - red) / divisor,
        4 + (red - green) / divisor,
    ]
    sixths = jnp.select([value == red, value == green], differences[:2], differences[2])
    saturation = chroma / jnp.where(value == 0, 1.0, value)
    return jnp.stack([_within_circle(sixths / 6), saturation, value], -1)


def hsv_to_rgb(image: Array) -> Array:
    """Red, green and blue, ``f32[..., 3]``; the hue of any turn of the circle.

    >>> hsv_to_rgb(jnp.array([-1.0, 0.5, 1.0])).tolist()
    [1.0, 0.5, 0.5]
    """
    hue, saturation, value = jnp.moveaxis(image[..., None, :], -1, 0)
    sixths = 6 * _within_circle(hue + jnp.array([5.0, 3.0, 1.0]) / 6)
    return value * (1 - saturation * jnp.clip(jnp.minimum(sixths, 4 - sixths), 0, 1))


def _within_circle(turns: Array) -> Array:
    return turns - jnp.floor(turns)  # several times as fast as a remainder under XLA:CPU


def recoloured(
    image: Array, hue: Array | float, saturation: Array | float, exposure: Array | float
) -> Array:
    """The hue turned, saturation and value multiplied, then clipped to 0 … 1; a grey image has a value alone.

    Args:
      image: ``f32[H, W, C]``, C 1 or 3.
      hue: in circles.
      saturation: a factor.
      exposure: a factor.
    """
    if image.shape[-1] == 1:
        return jnp.clip(image * exposure, 0, 1)
    hsv = rgb_to_hsv(image)
    changed = jnp.stack([hsv[..., 0] + hue, hsv[..., 1] * saturation, hsv[..., 2] * exposure], -1)
    return jnp.clip(hsv_to_rgb(changed), 0, 1)


def draw_factor(key: Array, limit: float) -> Array:
    """A factor uniform in `limit` … 1, and for every second key 1 over such a factor (Darknet's ``rand_scale``)."""
    size, side = jax.random.split(key)
    factor = jax.random.uniform(size, minval=limit, maxval=1.0)
    return jnp.where(jax.random.bernoulli(side), factor, 1 / factor)


def colour(image: Array, key: Array) -> Array:
    """Another hue, by up to a tenth of the circle, and saturation and exposure times 0.75 … 1.33; clipped to 0 … 1.

    Source: Redmon & Farhadi 2017, "YOLO9000", §3; Darknet's ``random_distort_image``.
    """
    hue, saturation, exposure = jax.random.split(key, 3)
    turn = jax.random.uniform(hue, minval=-HUE, maxval=HUE)
    return recoloured(
        image, turn, draw_factor(saturation, SATURATION), draw_factor(exposure, EXPOSURE)
    )


def lighting(image: Array, key: Array) -> Array:
    """A colour added, drawn along the principal components of ImageNet's colours; not clipped; RGB alone.

    Source: Krizhevsky et al. 2012, "ImageNet classification with deep convolutional neural networks", §4.1.

    Raises:
      InputError: the image is not RGB.
    """
    if image.shape[-1] != 3:
        raise InputError(
            f"augmentation 'lighting' is for RGB images: these have {image.shape[-1]} channel(s); leave it out"
        )
    amounts = LIGHTING * jax.random.normal(key, (3,)) * jnp.array(EIGENVALUES)
    return image + jnp.sum(
        jnp.array(EIGENVECTORS) * amounts, axis=1
    )  # a matrix product would be in fewer bits on some devices
