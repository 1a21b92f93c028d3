"""Layers other than convolutions, forward and backward.

Pooling, activations, normalizations and transforms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from experiments.microbenchmarks.kernel import Kernel, format_shapes, normal_operands
from jaxcnn import ops

IMAGES = (32, 56, 56, 64)  # 26 MB in float32: a batch between the first blocks of ResNet-50
VECTOR = (IMAGES[-1],)


def batch_norm(images: Array, scale: Array, bias: Array) -> Array:
    """``(x - mean) / sqrt(variance + 1e-5) * scale + bias``, as in training.

    Mean and variance are over batch and plane.

    References:
      Ioffe and Szegedy 2015, *Batch Normalization*, algorithm 1.
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
      function: of the operands, the first of which are the images.
      group: the table in which it is shown.
      shapes: of the operands.
      quick_forward, quick_backward: whether these are in the quick preset.
      lowering: ``ours`` if the function is one of `jaxcnn.ops`.
    """

    name: str
    function: Callable[..., Array]
    group: str
    shapes: tuple[tuple[int, ...], ...] = (IMAGES,)
    quick_forward: bool = True
    quick_backward: bool = True
    lowering: str = "xla"


LAYERS = (
    Layer("max_pool", partial(ops.max_pool, window=2), "pooling", lowering="ours"),
    Layer(
        "max_pool_3_2",
        partial(ops.max_pool, window=3, strides=2, padding="CEIL"),
        "pooling",
        quick_forward=False,
        quick_backward=False,
        lowering="ours",
    ),
    Layer("average_pool", partial(ops.avg_pool, window=2), "pooling", lowering="ours"),
    Layer("relu", jax.nn.relu, "activation"),
    Layer("sigmoid", jax.nn.sigmoid, "activation", quick_backward=False),
    Layer("tanh", jnp.tanh, "activation", quick_backward=False),
    Layer("softmax", jax.nn.softmax, "activation", shapes=((4096, 1000),)),
    Layer(
        "lrn",
        ops.local_response_norm,
        "normalisation",
        shapes=((8, *IMAGES[1:]),),
        lowering="ours",
    ),
    Layer(
        "lcn",
        ops.local_contrast_norm,
        "normalisation",
        shapes=((8, *IMAGES[1:]),),
        quick_backward=False,
        lowering="ours",
    ),
    Layer("batch_norm", batch_norm, "normalisation", shapes=(IMAGES, VECTOR, VECTOR)),
    Layer("nhwc_to_nchw", to_channels_first, "transform", quick_backward=False),
    Layer(
        "nchw_to_nhwc",
        to_channels_last,
        "transform",
        shapes=((32, 64, 56, 56),),
        quick_forward=False,
        quick_backward=False,
    ),
    Layer("flatten", flatten, "transform", quick_backward=False),
    Layer(
        "transpose",
        jnp.transpose,
        "transform",
        shapes=((2048, 3136),),
        quick_forward=False,
        quick_backward=False,
    ),
)


def kernels(platform: str) -> list[Kernel]:
    """Every layer forward and backward; in bfloat16 too on accelerators."""
    dtypes = ("float32",) if platform == "cpu" else ("float32", "bfloat16")
    return [
        make_kernel(layer, dtype)
        for dtype in dtypes
        for layer in LAYERS
        for make_kernel in (_forward_kernel, _backward_kernel)
    ]


def backward(*operands: Array, function: Callable[..., Array]) -> tuple[Array, ...]:
    """The gradients of ``sum(cotangent * function(*inputs))`` with respect to the inputs.

    Args:
      *operands: the inputs, and the cotangent as the last.
      function: of the inputs.
    """
    *inputs, cotangent = operands
    return jax.vjp(function, *inputs)[1](cotangent)


def _forward_kernel(layer: Layer, dtype: str) -> Kernel:
    operands = normal_operands(dtype, *layer.shapes)
    return Kernel(
        name=f"{layer.name}-forward{_suffix(dtype)}",
        group=layer.group,
        shape=format_shapes(*layer.shapes),
        dtype=dtype,
        make_operands=operands,
        function=layer.function,
        quick=layer.quick_forward and dtype == "float32",
        lowering=layer.lowering,
        note="forward",
    )


def _backward_kernel(layer: Layer, dtype: str) -> Kernel:
    inputs = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in layer.shapes)
    cotangent = jax.eval_shape(layer.function, *inputs)
    return Kernel(
        name=f"{layer.name}-backward{_suffix(dtype)}",
        group=layer.group,
        shape=format_shapes(*layer.shapes),
        dtype=dtype,
        make_operands=normal_operands(dtype, *layer.shapes, cotangent.shape),
        function=partial(backward, function=layer.function),
        quick=layer.quick_backward and dtype == "float32",
        lowering=layer.lowering,
        note="backward",
    )


def _suffix(dtype: str) -> str:
    return "" if dtype == "float32" else f"-{dtype}"
