"""Mixup and CutMix: training images, and their labels, are mixed in pairs of one batch.

The other image is the next or the previous row: rows 0 and 1 are mixed with each other, rows 2 and
3, and so on. As an epoch's order is random, so are the pairs; and as a device or a microbatch holds
whole pairs, every strategy mixes the same images without communication.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import InputError

Batch = dict[str, Array]

PAIR = 2  # rows that must stay together where a batch is divided


def rows_together(mixup: float, cutmix: float) -> int:
    """The number of rows that must stay together where a batch is divided.

    Args:
      mixup, cutmix: as of `Mixing`; 0 for none.

    >>> rows_together(mixup=0.8, cutmix=0.0), rows_together(0.0, 0.0)
    (2, 1)
    """
    return PAIR if mixup or cutmix else 1


@dataclass(frozen=True)
class Mixing:
    """Mixes the images of a batch in pairs; with both methods, one of them is drawn per batch.

    As in the papers' programs, the share of the other image is drawn once per batch, from the
    distribution Beta(alpha, alpha), and so is CutMix's rectangle.

    Attributes:
      mixup: its alpha; 0 for none. An image becomes the weighted mean of both.
      cutmix: its alpha; 0 for none. A rectangle of the image is replaced by that of the other one.

    References:
      Zhang et al. 2018, *mixup: Beyond Empirical Risk Minimization*, §2; Yun et al. 2019, *CutMix*,
      §3.1 and algorithm A1.

    >>> images, batch = jnp.array([0.0, 1.0]).reshape(2, 1, 1, 1), {"label": jnp.array([7, 8])}
    >>> mixed, batch = Mixing(mixup=0.2)(images, batch, jax.random.key(0))
    >>> bool(jnp.allclose(mixed[0, 0, 0, 0], batch["other_share"][0]))
    True
    >>> batch["other_label"].tolist()
    [8, 7]
    """

    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self):
        for name, alpha in (("mixup", self.mixup), ("cutmix", self.cutmix)):
            if not 0 <= alpha < math.inf:
                raise InputError(f"{name} {alpha}: its alpha must be 0, for none, or positive")
        if not self.mixup and not self.cutmix:
            raise InputError("mixing needs a positive alpha of mixup, of cutmix, or of both")

    def __call__(self, images: Array, batch: Batch, key: Array) -> tuple[Array, Batch]:
        """Mixes the rows of a batch in pairs.

        Args:
          images: ``f32[N, H, W, C]``, preprocessed; N is even.
          batch: ``label: i32[N]``; in a batch with padding rows also ``mask: f32[N]``. An image is
            not mixed with padding.
          key: the same for all parts of a batch.

        Returns:
          The images; and the batch with two more entries, ``other_label: i32[N]`` and
          ``other_share: f32[N]``, the weight of that label in 0 … 1.

        Raises:
          InputError: N is odd.
        """
        if len(images) % PAIR:
            raise InputError(
                f"mixup and CutMix mix images in pairs: the batch of each device has {len(images)} "
                "images, an odd number; choose another batch size"
            )
        weights = self._weights(key, images.shape[1:3])[None]
        if "mask" in batch:
            both = batch["mask"] * _other(batch["mask"])
            weights = jnp.where(both[:, None, None] > 0, weights, 1.0)
        else:
            weights = jnp.broadcast_to(weights, (len(images), *weights.shape[1:]))
        mixed = weights[..., None] * images + (1 - weights[..., None]) * _other(images)
        other_share = 1 - weights.mean((1, 2))
        return mixed, batch | {"other_label": _other(batch["label"]), "other_share": other_share}

    def _weights(self, key: Array, size: tuple[int, ...]) -> Array:
        """The weight of an image's own pixels, ``f32[H, W]``."""
        choice_key, mixup_key, cutmix_key = jax.random.split(key, 3)
        if not self.cutmix:
            return mixup_weights(mixup_key, self.mixup, size)
        if not self.mixup:
            return cutmix_weights(cutmix_key, self.cutmix, size)
        return jnp.where(
            jax.random.bernoulli(choice_key),
            mixup_weights(mixup_key, self.mixup, size),
            cutmix_weights(cutmix_key, self.cutmix, size),
        )


def mixup_weights(key: Array, alpha: float, size: tuple[int, ...]) -> Array:
    """One weight for all pixels, from Beta(alpha, alpha), ``f32[H, W]``."""
    return jnp.broadcast_to(symmetric_beta(key, alpha), size)


def cutmix_weights(key: Array, alpha: float, size: tuple[int, ...]) -> Array:
    """0 inside of a random rectangle and 1 outside, ``f32[H, W]``.

    The rectangle has the image's aspect ratio, an area of 1 - λ with λ from Beta(alpha, alpha), and
    its center anywhere in the image, which may cut it off.
    """
    area_key, center_key = jax.random.split(key)
    sides = jnp.array(size, jnp.float32)
    ratio = jnp.sqrt(1 - symmetric_beta(area_key, alpha))
    half_sides = jnp.floor(ratio * sides / 2)
    center = jnp.floor(jax.random.uniform(center_key, (2,)) * sides)
    low, high = center - half_sides, center + half_sides
    rows, columns = (jnp.arange(side).astype(jnp.float32) for side in size)
    in_rows = (rows >= low[0]) & (rows < high[0])
    in_columns = (columns >= low[1]) & (columns < high[1])
    return 1 - (in_rows[:, None] & in_columns[None, :]).astype(jnp.float32)


def symmetric_beta(key: Array, alpha: float) -> Array:
    """A number from the distribution Beta(alpha, alpha), ``f32[]``.

    It needs no loop, unlike `jax.random.beta`, which takes seconds to compile. If T has Student's
    distribution with 2 alpha degrees of freedom, ``1/2 + T / (2 sqrt(2 alpha + T²))`` is such a
    number; T is the product of a radius and the cosine of a random angle (Bailey 1994, *Polar
    generation of random variates with the t-distribution*).
    """
    radius, angle = jax.random.uniform(key, (2,))
    power = radius ** (1 / alpha)
    cosine = jnp.cos(2 * jnp.pi * angle)
    square = (1 - power) * cosine**2
    return 0.5 + 0.5 * jnp.sign(cosine) * jnp.sqrt(square / (power + square))


def _other(rows: Array) -> Array:
    """The other row of each pair, ``[N, …]``."""
    pairs = rows.reshape(len(rows) // PAIR, PAIR, *rows.shape[1:])
    return pairs[:, ::-1].reshape(rows.shape)
