"""What stands between the convolutions, forward and backward: pools, activations, normalisations, transforms (system E4)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from experiments.microbenchmarks.kernel import Kernel, normal, preset, times
from jaxcnn import ops


def batch_norm(images: Array, scale: Array, bias: Array) -> Array:
    """``(x - mean) / sqrt(variance + 1e-5) * scale + bias``, both over the batch and the plane, as in training.

    Source: Ioffe & Szegedy 2015, *Batch Normalization*, algorithm 1.
    """
    wide = images.astype(jnp.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias).astype(images.dtype)


def to_channels_first(images: Array) -> Array:
    """``[N, H, W, C]`` to ``[N, C, H, W]``."""
    return jnp.transpose(images, (0, 3, 1, 2))


def to_channels_last(images: Array) -> Array:
    """``[N, C, H, W]`` to ``[N, H, W, C]``."""
    return jnp.transpose(images, (0, 2, 3, 1))


def flatten(images: Array) -> Array:
    """``[N, …]`` to ``[N, F]``."""
    return images.reshape(len(images), -1)


@dataclass(frozen=True)
class Layer:
    """An operation on images, or on rows of numbers.

    Attributes:
      name: of its kernels.
      function: of the operands, the first being the images.
      shapes: of the operands.
      group: the table that it belongs to.
      quick: whether forward, and whether backward, is among the quick ones.
      lowering: ``ours`` where the function is one of `jaxcnn.ops`.
    """

    name: str
    function: Callable[..., Array]
    shapes: tuple[tuple[int, ...], ...]
    group: str
    quick: tuple[bool, bool] = (True, True)
    lowering: str = "xla"


IMAGES = (32, 56, 56, 64)  # 26 MB in float32: a batch between ResNet-50's first blocks
VECTOR = (IMAGES[-1],)
LAYERS = (
    Layer("max_pool", partial(ops.max_pool, window=2), (IMAGES,), "pooling", lowering="ours"),
    Layer("max_pool_3_2", partial(ops.max_pool, window=3, strides=2, padding="CEIL"), (IMAGES,), "pooling", (False, False), "ours"),
    Layer("average_pool", partial(ops.avg_pool, window=2), (IMAGES,), "pooling", lowering="ours"),
    Layer("relu", jax.nn.relu, (IMAGES,), "activation"),
    Layer("sigmoid", jax.nn.sigmoid, (IMAGES,), "activation", (True, False)),
    Layer("tanh", jnp.tanh, (IMAGES,), "activation", (True, False)),
    Layer("softmax", jax.nn.softmax, ((4096, 1000),), "activation"),
    Layer("lrn", ops.local_response_norm, ((8, *IMAGES[1:]),), "normalisation", lowering="ours"),
    Layer("lcn", ops.local_contrast_norm, ((8, *IMAGES[1:]),), "normalisation", (True, False), "ours"),
    Layer("batch_norm", batch_norm, (IMAGES, VECTOR, VECTOR), "normalisation"),
    Layer("nhwc_to_nchw", to_channels_first, (IMAGES,), "transform", (True, False)),
    Layer("nchw_to_nhwc", to_channels_last, ((32, 64, 56, 56),), "transform", (False, False)),
    Layer("flatten", flatten, (IMAGES,), "transform", (True, False)),
    Layer("transpose", jnp.transpose, ((2048, 3136),), "transform", (False, False)),
)  # fmt: skip


def kernels(platform: str) -> list[Kernel]:
    """Every layer forward and backward; in bfloat16 too where that is an accelerator's own."""
    dtypes = ("float32",) if platform == "cpu" else ("float32", "bfloat16")
    return [
        _kernel(layer, backward, dtype)
        for dtype in dtypes
        for layer in LAYERS
        for backward in (False, True)
    ]


def backward(*operands: Array, function: Callable[..., Array]) -> tuple[Array, ...]:
    """The gradients of ``sum(cotangent * function(*others))`` with respect to the others; the last operand is the cotangent."""
    *others, cotangent = operands
    return jax.vjp(function, *others)[1](cotangent)


def _kernel(layer: Layer, backwards: bool, dtype: str) -> Kernel:
    result = jax.eval_shape(
        layer.function, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in layer.shapes)
    )
    shapes = (*layer.shapes, result.shape) if backwards else layer.shapes
    function = partial(backward, function=layer.function) if backwards else layer.function
    half = "" if dtype == "float32" else f"-{dtype}"
    return Kernel(
        f"{layer.name}-{'backward' if backwards else 'forward'}{half}", layer.group, times(*layer.shapes), dtype,
        normal(dtype, *shapes), function, preset(layer.quick[backwards] and not half), lowering=layer.lowering,
        note="backward" if backwards else "forward",
    )  # fmt: skip
