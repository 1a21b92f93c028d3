"""Images resampled at other places, bilinearly: the affine augmentation and the crop of any size and shape."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.ndimage import map_coordinates

Size = tuple[int, int]

# S. Agrawal, Cats_versus_Dogs: ImageDataGenerator(rotation_range=40, width_shift_range=0.2, height_shift_range=0.2,
# shear_range=0.2, zoom_range=0.2, fill_mode="nearest"). Keras takes the shear in degrees, so that this one hardly shows.
ROTATION = 40.0  # degrees, each way
SHIFT = 0.2  # of the side, each way
SHEAR = 0.2  # degrees, each way
ZOOM = 0.2  # around 1, each way

# Szegedy et al. 2015, "Going deeper with convolutions", §6
SMALLEST = 0.08  # of the area of the image
LONGEST = 4 / 3  # width to height, and height to width


class Motion(NamedTuple):
    """An affine map about the middle of an image, from the places of the result to those of the original.

    Attributes:
      rotation: radians; positive turns the picture clockwise.
      shift: rows, columns; positive moves the picture up and to the left.
      shear: radians.
      zoom: of rows, of columns; above 1 the picture shrinks.
    """

    rotation: Array | float = 0.0
    shift: tuple[Array | float, Array | float] = (0.0, 0.0)
    shear: Array | float = 0.0
    zoom: tuple[Array | float, Array | float] = (1.0, 1.0)


class Box(NamedTuple):
    """A rectangle of an image, in pixels and parts of pixels: its upper left corner and its sides."""

    top: Array | float
    left: Array | float
    height: Array | float
    width: Array | float


def sample(image: Array, rows: Array, columns: Array) -> Array:
    """The image at places between its pixels, bilinearly; beyond its edge the nearest pixel.

    Args:
      image: ``f32[H, W, C]``.
      rows: ``f32[h, w]``, 0 in the middle of the first pixel.
      columns: likewise.

    Returns:
      ``f32[h, w, C]``.

    >>> sample(jnp.array([[[0.0], [4.0]]]), jnp.zeros((1, 3)), jnp.array([[0.25, 1.0, 9.0]])).ravel().tolist()
    [1.0, 4.0, 4.0]
    """
    channel = partial(map_coordinates, coordinates=(rows, columns), order=1, mode="nearest")
    return jax.vmap(channel, in_axes=2, out_axes=2)(image)


def moved(image: Array, motion: Motion) -> Array:
    """The image after a `Motion`, ``f32[H, W, C]``, the nearest pixel filling what comes from outside.

    The matrices are those of Keras's ``apply_affine_transform``, in its order, rotation · shift · shear · zoom, and about
    the same middle, ``side / 2 - 0.5``. They are written out, because an accelerator multiplies matrices in fewer bits than
    a place in an image needs.
    """
    middle = [side / 2 - 0.5 for side in image.shape[:2]]
    rows = jnp.arange(image.shape[0])[:, None] - middle[0]
    columns = jnp.arange(image.shape[1])[None, :] - middle[1]
    rows, columns = motion.zoom[0] * rows, motion.zoom[1] * columns
    rows, columns = rows - jnp.sin(motion.shear) * columns, jnp.cos(motion.shear) * columns
    rows, columns = rows + motion.shift[0], columns + motion.shift[1]
    cos, sin = jnp.cos(motion.rotation), jnp.sin(motion.rotation)
    return sample(
        image, cos * rows - sin * columns + middle[0], sin * rows + cos * columns + middle[1]
    )


def draw_motion(key: Array, size: Size) -> Motion:
    """A random `Motion` of an image of `size`, every parameter uniform between its limits."""
    rotation, down, right, shear, *zoom = jax.random.uniform(key, (6,), minval=-1.0, maxval=1.0)
    return Motion(
        rotation=jnp.deg2rad(ROTATION) * rotation,
        shift=(SHIFT * size[0] * down, SHIFT * size[1] * right),
        shear=jnp.deg2rad(SHEAR) * shear,
        zoom=(1 + ZOOM * zoom[0], 1 + ZOOM * zoom[1]),
    )


def affine(image: Array, key: Array) -> Array:
    """Turned by up to 40°, moved by up to a fifth of its side, sheared by up to 0.2°, zoomed by 0.8 … 1.2, ``f32[H, W, C]``.

    Source: Keras's ``ImageDataGenerator`` with the settings of S. Agrawal's notebook Cats_versus_Dogs, its flip apart.
    """
    return moved(image, draw_motion(key, image.shape[:2]))


def cut_out(image: Array, box: Box, size: Size) -> Array:
    """A rectangle of the image brought to a size, ``f32[height, width, C]``: bilinear, without antialiasing."""
    rows = box.top + (jnp.arange(size[0]) + 0.5) * (box.height / size[0]) - 0.5
    columns = box.left + (jnp.arange(size[1]) + 0.5) * (box.width / size[1]) - 0.5
    return sample(image, *jnp.meshgrid(rows, columns, indexing="ij"))


def draw_box(key: Array, size: Size) -> Box:
    """A random `Box` inside an image of `size`: 8 % … 100 % of its area, uniform; sides 3:4 … 4:3, uniform in the logarithm.

    The ratio is drawn from those with which the area fits into the image, so that nothing is drawn twice; of an image longer
    than 4:3 the largest box is less than the whole.
    """
    area, ratio, down, right = jax.random.uniform(key, (4,))
    shape = size[1] / size[0]
    largest = min(1.0, LONGEST / shape, LONGEST * shape)
    smallest = min(SMALLEST, largest)
    area = smallest + (largest - smallest) * area
    low, high = (
        jnp.log(jnp.maximum(1 / LONGEST, area * shape)),
        jnp.log(jnp.minimum(LONGEST, shape / area)),
    )
    ratio = jnp.exp(low + (high - low) * ratio)
    height, width = (
        jnp.sqrt(area * size[0] * size[1] / ratio),
        jnp.sqrt(area * size[0] * size[1] * ratio),
    )
    return Box(down * (size[0] - height), right * (size[1] - width), height, width)


def resized_crop(image: Array, key: Array, size: Size) -> Array:
    """A random part of the image, 8 % … 100 % of its area and 3:4 … 4:3 in shape, brought to a size: ``f32[height, width, C]``.

    Source: Szegedy et al. 2015, "Going deeper with convolutions", §6.
    """
    return cut_out(image, draw_box(key, image.shape[:2]), size)
