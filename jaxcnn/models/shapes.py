"""Shapes of feature maps: computed without arrays, and checked for pixels."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import InputError

Shape = tuple[int, ...]


class ImagesTooSmallError(InputError):
    """The convolutions and pools of a network leave no pixels of its images."""


def flatten(images: Array) -> Array:
    """Flattens ``[N, H, W, C]`` to ``[N, H * W * C]``.

    Raises:
      ImagesTooSmallError: the images have no pixels.

    >>> flatten(jnp.ones((2, 3, 3, 4))).shape
    (2, 36)
    """
    require_pixels(images)
    return images.reshape(len(images), -1)


def feature_map(layers: Callable[[Array], Array], input_shape: Shape) -> Shape:
    """The shape that layers compute from one image, without the batch axis.

    Args:
      layers: a function of images ``f32[N, H, W, C]`` that draws no random numbers and updates no
        statistics.
      input_shape: height, width and channels of the image.

    >>> feature_map(lambda images: images[:, ::2, ::2], (28, 28, 3))
    (14, 14, 3)
    """
    image = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    return jax.eval_shape(layers, image).shape[1:]


def flat_size(layers: Callable[[Array], Array], input_shape: Shape) -> int:
    """The number of features per image after `layers` and `flatten`.

    Args:
      layers, input_shape: as in `feature_map`.

    Raises:
      ImagesTooSmallError: `layers` leave no pixels of the image.

    >>> flat_size(lambda images: images[:, ::2, ::2], (28, 28, 3))
    588
    """
    return feature_map(lambda images: flatten(layers(images)), input_shape)[0]


def require_pixels(images: Array) -> None:
    """Raises `ImagesTooSmallError` if the images ``[N, H, W, C]`` have no pixels."""
    if 0 in images.shape[1:]:
        raise ImagesTooSmallError(
            "the images are too small: the convolutions and pools of the network leave no pixels"
        )
