"""The foreign function calls of batch norm. Arrays are float32, images ``[..., C]``."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.ops.native.loader import CALL_PREFIX

Clip = tuple[float, float]  # the range of an activation that clips, such as ReLU's (0, inf)


def moments(images: Array) -> Array:
    """``f32[2, C]``: the sums of ``f32[..., C]`` over all axes but the last, and of the squares."""
    return _call("moments", (2, images.shape[-1]), _rows(images))


def normalize_gradient_sums(
    images: Array, cotangent: Array, mean: Array, factor: Array, shift: Array, *, clip: Clip
) -> Array:
    """The sums ``f32[2, C]`` of ``g`` and ``g * (images - mean)``.

    ``g`` is the cotangent of ``(images - mean) * factor + shift``, given that of its clipped value.
    """
    operands = (_rows(images), _rows(cotangent), mean, factor, shift)
    return _call("normalize_gradient_sums", (2, images.shape[-1]), *operands, clip=clip)


def normalize_gradient(
    images: Array,
    cotangent: Array,
    mean: Array,
    factor: Array,
    shift: Array,
    slope: Array,
    offset: Array,
    *,
    clip: Clip,
) -> Array:
    """``g * factor + (images - mean) * slope + offset``, see `normalize_gradient_sums`."""
    rows = _rows(images)
    operands = (rows, _rows(cotangent), mean, factor, shift, slope, offset)
    return _call("normalize_gradient", rows.shape, *operands, clip=clip).reshape(images.shape)


def _rows(images: Array) -> Array:
    return images.reshape(-1, images.shape[-1])


def _call(name: str, shape: tuple[int, ...], *operands: Array, clip: Clip | None = None) -> Array:
    result = jax.ShapeDtypeStruct(shape, jnp.float32)
    limits = {} if clip is None else {"low": np.float32(clip[0]), "high": np.float32(clip[1])}
    call = jax.ffi.ffi_call(CALL_PREFIX + name, result, vmap_method="sequential")
    return call(*operands, **limits)
