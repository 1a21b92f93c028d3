"""Bilinear resampling: the random affine transform, and the random crop of any area and shape."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.ndimage import map_coordinates

Size = tuple[int, ...]  # height and width, like the slice of a shape

# S. Agrawal, Cats_versus_Dogs: ImageDataGenerator(rotation_range=40, width_shift_range=0.2,
# height_shift_range=0.2, shear_range=0.2, zoom_range=0.2, fill_mode="nearest"). Keras takes the
# shear in degrees, so this one is hardly visible. Each range is symmetric.
MAX_ROTATION = 40.0  # degrees
MAX_SHIFT = 0.2  # fraction of the side
MAX_SHEAR = 0.2  # degrees
MAX_ZOOM = 0.2  # distance from 1

# Szegedy et al. 2015, "Going deeper with convolutions", §6
MIN_AREA = 0.08  # fraction of the image's area
MAX_ASPECT_RATIO = 4 / 3  # of width to height, and of height to width


class AffineParams(NamedTuple):
    """An affine transform about the center of an image, from output to input coordinates.

    Attributes:
      rotation: radians; positive values rotate the image clockwise.
      shift: (rows, columns) in pixels; positive values move the image up and to the left.
      shear: radians.
      zoom: (rows, columns); values above 1 shrink the image.
    """

    rotation: Array | float = 0.0
    shift: tuple[Array | float, Array | float] = (0.0, 0.0)
    shear: Array | float = 0.0
    zoom: tuple[Array | float, Array | float] = (1.0, 1.0)


class CropBox(NamedTuple):
    """A rectangle of an image: its upper left corner and its sides, in fractional pixels."""

    top: Array | float
    left: Array | float
    height: Array | float
    width: Array | float


def interpolate(image: Array, rows: Array, columns: Array) -> Array:
    """Bilinear interpolation at fractional pixel coordinates; the nearest pixel outside the image.

    Args:
      image: ``f32[H, W, C]``.
      rows: ``f32[h, w]``; 0 is the center of the first row of pixels.
      columns: ``f32[h, w]``; 0 is the center of the first column of pixels.

    Returns:
      ``f32[h, w, C]``.

    >>> image = jnp.array([[[0.0], [4.0]]])
    >>> interpolate(image, jnp.zeros((1, 3)), jnp.array([[0.25, 1.0, 9.0]])).ravel().tolist()
    [1.0, 4.0, 4.0]
    """
    channel = partial(map_coordinates, coordinates=(rows, columns), order=1, mode="nearest")
    return jax.vmap(channel, in_axes=2, out_axes=2)(image)


def apply_affine(image: Array, params: AffineParams) -> Array:
    """Transforms an image, filling pixels from outside with the nearest pixel.

    The matrices are those of Keras's ``apply_affine_transform``, in its order, rotation · shift ·
    shear · zoom, and about the same center, ``side / 2 - 0.5``. They are written out, because an
    accelerator multiplies matrices with fewer bits than pixel coordinates need.

    Args:
      image: ``f32[H, W, C]``.
      params: the transform.

    Returns:
      ``f32[H, W, C]``.
    """
    center = [side / 2 - 0.5 for side in image.shape[:2]]
    rows = jnp.arange(image.shape[0]).astype(jnp.float32)[:, None] - center[0]
    columns = jnp.arange(image.shape[1]).astype(jnp.float32)[None, :] - center[1]
    rows, columns = params.zoom[0] * rows, params.zoom[1] * columns
    rows, columns = rows - jnp.sin(params.shear) * columns, jnp.cos(params.shear) * columns
    rows, columns = rows + params.shift[0], columns + params.shift[1]
    cos, sin = jnp.cos(params.rotation), jnp.sin(params.rotation)
    return interpolate(
        image, cos * rows - sin * columns + center[0], sin * rows + cos * columns + center[1]
    )


def random_affine_params(key: Array, size: Size) -> AffineParams:
    """Random parameters for an image of `size` (height, width), each uniform in its range."""
    rotation, rows, columns, shear, *zoom = jax.random.uniform(key, (6,), minval=-1.0, maxval=1.0)
    return AffineParams(
        rotation=jnp.deg2rad(MAX_ROTATION) * rotation,
        shift=(MAX_SHIFT * size[0] * rows, MAX_SHIFT * size[1] * columns),
        shear=jnp.deg2rad(MAX_SHEAR) * shear,
        zoom=(1 + MAX_ZOOM * zoom[0], 1 + MAX_ZOOM * zoom[1]),
    )


def affine(image: Array, key: Array) -> Array:
    """Random rotation (±40°), shift (± a fifth of the side), shear (±0.2°) and zoom (0.8 … 1.2).

    Source: Keras's ``ImageDataGenerator`` with the settings of S. Agrawal's notebook
    Cats_versus_Dogs, without its flip.

    Args:
      image: ``f32[H, W, C]``.
      key: random key.

    Returns:
      ``f32[H, W, C]``.
    """
    return apply_affine(image, random_affine_params(key, image.shape[:2]))


def crop_and_resize(image: Array, box: CropBox, size: Size) -> Array:
    """Resizes a rectangle of an image, bilinearly and without antialiasing.

    Args:
      image: ``f32[H, W, C]``.
      box: the rectangle.
      size: height and width of the result.

    Returns:
      ``f32[height, width, C]``.
    """
    rows = box.top + (jnp.arange(size[0]).astype(jnp.float32) + 0.5) * (box.height / size[0]) - 0.5
    columns = (
        box.left + (jnp.arange(size[1]).astype(jnp.float32) + 0.5) * (box.width / size[1]) - 0.5
    )
    return interpolate(image, *jnp.meshgrid(rows, columns, indexing="ij"))


def random_crop_box(
    key: Array,
    size: Size,
    areas: tuple[float, float] = (MIN_AREA, 1.0),
    max_ratio: float = MAX_ASPECT_RATIO,
) -> CropBox:
    """A random `CropBox` inside an image of `size` (height, width).

    Its area is uniform in `areas`, fractions of the image's area, and its aspect ratio log-uniform
    in ``1 / max_ratio`` … `max_ratio`. The ratio is drawn from the range in which the area fits
    into the image, so no rejection is needed; the largest box in an image longer than the greatest
    ratio is smaller than the image.
    """
    area, ratio, top, left = jax.random.uniform(key, (4,))
    image_ratio = size[1] / size[0]
    max_area = min(areas[1], max_ratio / image_ratio, max_ratio * image_ratio)
    min_area = min(areas[0], max_area)
    area = min_area + (max_area - min_area) * area
    low = jnp.log(jnp.maximum(1 / max_ratio, area * image_ratio))
    high = jnp.log(jnp.minimum(max_ratio, image_ratio / area))
    ratio = jnp.exp(low + (high - low) * ratio)
    height = jnp.sqrt(area * size[0] * size[1] / ratio)
    width = jnp.sqrt(area * size[0] * size[1] * ratio)
    return CropBox(top * (size[0] - height), left * (size[1] - width), height, width)


def resized_crop(image: Array, key: Array, size: Size) -> Array:
    """Crops 8 % … 100 % of the image's area at an aspect ratio of 3:4 … 4:3, and resizes the crop.

    Source: Szegedy et al. 2015, "Going deeper with convolutions", §6.

    Args:
      image: ``f32[H, W, C]``.
      key: random key.
      size: height and width of the result.

    Returns:
      ``f32[height, width, C]``.
    """
    return crop_and_resize(image, random_crop_box(key, image.shape[:2]), size)
