"""Random erasing: a random rectangle of the image is replaced by noise."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.data.affine import random_crop_box

# Zhong et al. 2020, §4.1: s_l, s_h and r_1
AREAS = (0.02, 0.4)  # fractions of the image's area
MAX_ASPECT_RATIO = 1 / 0.3  # of width to height, and of height to width


def random_erasing(image: Array, key: Array, probability: float = 0.5) -> Array:
    """Replaces a random rectangle by uniform noise in 0 … 1, with this probability.

    The rectangle's area is uniform in 2 % … 40 % of the image's, its aspect ratio log-uniform in
    3:10 … 10:3 as far as it fits into the image, its position uniform.

    Source: Zhong et al. 2020, *Random Erasing Data Augmentation*, §3.2, with random values (RE-R).

    Args:
      image: ``f32[H, W, C]`` in 0 … 1.
      key: random key.
      probability: 0 to 1.

    Returns:
      ``f32[H, W, C]``.
    """
    erase_key, box_key, noise_key = jax.random.split(key, 3)
    box = random_crop_box(box_key, image.shape[:2], AREAS, MAX_ASPECT_RATIO)
    rows, columns = (jnp.arange(side).astype(jnp.float32) + 0.5 for side in image.shape[:2])
    in_rows = (rows >= box.top) & (rows < box.top + box.height)
    in_columns = (columns >= box.left) & (columns < box.left + box.width)
    erased = in_rows[:, None] & in_columns[None, :] & jax.random.bernoulli(erase_key, probability)
    return jnp.where(erased[..., None], jax.random.uniform(noise_key, image.shape), image)
