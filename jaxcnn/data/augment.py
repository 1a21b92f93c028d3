"""What the compiled step does to its images first: bytes to numbers, and augmentation, an independent draw an example."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.errors import require_known

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


AUGMENTATIONS: dict[str, Callable[[Array, Array], Array]] = {"flip": flip, "shift": shift}


def prepare(
    names: tuple[str, ...] = (), mean: tuple[float, ...] = (0.0,), std: tuple[float, ...] = (1.0,)
) -> Callable[[Array, Array | None], Array]:
    """Bytes to 0 … 1; in training the augmentations named, in order; then ``(image - mean) / std``.

    Args:
      names: keys of `AUGMENTATIONS`.
      mean: of each channel, or one for all, of images in 0 … 1; see `source.channel_statistics`.
      std: standard deviation, likewise.

    Returns:
      ``prepare(images: u8[N, H, W, C], keys: key[N] | None) -> f32[N, H, W, C]``; no keys, no augmentation.

    Raises:
      InputError: an unknown name.
    """
    for name in names:
        require_known("augmentation", name, AUGMENTATIONS)

    def prepared(images: Array, keys: Array | None) -> Array:
        images = images.astype(jnp.float32) / 255
        for draw, name in enumerate(names if keys is not None else ()):
            images = jax.vmap(AUGMENTATIONS[name])(images, jax.vmap(jax.random.fold_in, (0, None))(keys, draw))
        return (images - jnp.array(mean)) / jnp.array(std)

    return prepared
