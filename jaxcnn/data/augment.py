"""What the compiled step does to its images first: bytes to numbers, size, augmentation, an independent draw an example."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.data.affine import Size, affine, resized_crop
from jaxcnn.data.colour import brightness, colour, contrast, lighting
from jaxcnn.errors import InputError, require_known

SHIFT = 1 / 8  # of the side, each way: four pixels of 32, as He et al. 2016, §4.2


def flip(image: Array, key: Array) -> Array:
    """Left and right exchanged for every second image, ``f32[H, W, C]``."""
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def shift(image: Array, key: Array) -> Array:
    """Moved by up to an eighth of its side each way, zeros moving in, ``f32[H, W, C]``."""
    margins = [max(1, round(side * SHIFT)) for side in image.shape[:2]]
    padded = jnp.pad(image, [*((margin, margin) for margin in margins), (0, 0)])
    corner = jax.random.randint(key, (2,), 0, 2 * jnp.array(margins) + 1)
    return lax.dynamic_slice(padded, (*corner, 0), image.shape)


def crop(image: Array, key: Array, size: Size) -> Array:
    """A part of the image, of the size given and from anywhere, ``f32[height, width, C]`` (Krizhevsky et al. 2012, §4.1)."""
    room = jnp.array([side - wanted for side, wanted in zip(image.shape, size, strict=False)])
    corner = jax.random.randint(key, (2,), 0, room + 1)
    return lax.dynamic_slice(image, (*corner, 0), (*size, image.shape[2]))


AUGMENTATIONS: dict[str, Callable[..., Array]] = {
    "flip": flip,
    "shift": shift,
    "affine": affine,
    "crop": crop,
    "resized_crop": resized_crop,
    "brightness": brightness,
    "contrast": contrast,
    "colour": colour,
    "lighting": lighting,
}
"""``(image: f32[H, W, C], key) -> f32[H, W, C]``; those in `CROPS` ``(image, key, size) -> f32[height, width, C]``."""

CROPS = ("crop", "resized_crop")


def central(images: Array, size: Size) -> Array:
    """The middle of images, ``[N, H, W, C]`` to ``[N, height, width, C]``; a pixel left over is below or to the right."""
    top, left = ((side - wanted) // 2 for side, wanted in zip(images.shape[1:3], size, strict=True))
    return images[:, top : top + size[0], left : left + size[1]]


def standardise_each(images: Array) -> Array:
    """Every image to mean 0 and standard deviation 1 over its pixels and channels together, ``f32[N, H, W, C]`` in 0 … 1.

    Equals ``tf.image.per_image_standardization`` of the bytes, which divides by ``1 / sqrt(H · W · C)`` grey levels at least.
    """
    least = 1 / (255 * math.sqrt(math.prod(images.shape[1:])))
    mean, std = images.mean((1, 2, 3), keepdims=True), images.std((1, 2, 3), keepdims=True)
    return (images - mean) / jnp.maximum(std, least)


def make_preprocess(
    names: tuple[str, ...] = (),
    mean: tuple[float, ...] = (0.0,),
    std: tuple[float, ...] = (1.0,),
    *,
    size: Size | None = None,
    per_image: bool = False,
) -> Callable[[Array, Array | None], Array]:
    """Bytes to 0 … 1; in training the augmentations named, in order; then ``(image - mean) / std``.

    Larger images are brought to `size` by the crop among the augmentations; where there is none, and in evaluation, by
    taking their middle, before anything else.

    Args:
      names: keys of `AUGMENTATIONS`.
      mean: of each channel, or one for all, of images in 0 … 1; see `source.channel_statistics`.
      std: standard deviation, likewise.
      size: height and width that the network wants; that of the images if not given.
      per_image: every image by its own mean and standard deviation instead, see `standardise_each`.

    Returns:
      ``preprocess(images: u8[N, H, W, C], keys: key[N] | None) -> f32[N, height, width, C]``; no keys, no augmentation. It
      raises `InputError` when it is traced with images smaller than `size`.

    Raises:
      InputError: an unknown name, or a size below 1.

    >>> make_preprocess(size=(2, 2))(jnp.full((1, 4, 4, 1), 255, jnp.uint8), None).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    for name in names:
        require_known("augmentation", name, AUGMENTATIONS)
    if size is not None and min(size) < 1:
        raise InputError(f"image size {size[0]}×{size[1]}: both sides must be 1 or more")

    def prepared(images: Array, keys: Array | None) -> Array:
        wanted = _wanted(images, size)
        if keys is None or not set(CROPS).intersection(names):
            images = central(images, wanted)
        images = images.astype(jnp.float32) / 255
        for draw, name in enumerate(names if keys is not None else ()):
            change = (
                partial(AUGMENTATIONS[name], size=wanted) if name in CROPS else AUGMENTATIONS[name]
            )
            images = jax.vmap(change)(images, jax.vmap(jax.random.fold_in, (0, None))(keys, draw))
        return (
            standardise_each(images) if per_image else (images - jnp.array(mean)) / jnp.array(std)
        )

    return prepared


def _wanted(images: Array, size: Size | None) -> Size:
    """The size to bring images to; raises `InputError` where they are smaller."""
    height, width = images.shape[1:3]
    if size is None:
        return height, width
    if height < size[0] or width < size[1]:
        raise InputError(
            f"images of {height}×{width} are smaller than the {size[0]}×{size[1]} that the network wants: "
            f"choose a smaller image size, or larger images"
        )
    return size
