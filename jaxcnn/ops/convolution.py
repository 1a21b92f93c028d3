"""Convolutions that are fast on a CPU too, including their gradients and inside loops.

They are those of `jax.lax`, marked for the CPU lowering of `jaxcnn.ops.conv_lowering`: the compiled
kernels of `jaxcnn.ops.native`, if those are available, which convert half precisions to float32 or
compute in bfloat16 where the processor has instructions for it; otherwise convolutions in XLA's
fast layout. TPU programs keep JAX's own convolutions and gradients, and GPU programs all but one
gradient, see there.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax._src.lax.lax import canonicalize_precision
from jax.typing import DTypeLike

from jaxcnn.ops import conv_lowering as conv_lowering  # registers it
from jaxcnn.ops import cpu_convolution, native
from jaxcnn.ops.channels import channel_sums
from jaxcnn.ops.conv_spec import ConvSpec, conv_spec
from jaxcnn.ops.cpu_lowering import fast_on_cpu, with_cpu_kernel
from jaxcnn.ops.materialize import materialize, materialize_cotangent
from jaxcnn.ops.partitioning import for_known_devices
from jaxcnn.ops.sharded_types import vary_like


def conv_general_dilated(
    images: Array,
    kernel: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Array:
    """`jax.lax.conv_general_dilated` with the same arguments, fast on a CPU too.

    So are its gradients, with any number of groups, strides, padding and kernel dilation, for
    images ``[N, H, W, C]``. Everything that JAX does with a convolution works: forward and reverse
    mode, nested, `jax.vmap`, sharding.

    Args:
      images: ``[N, H, W, C]``.
      kernel: ``[h, w, C / groups, D]``.
      window_strides: steps between windows, down and across.
      padding: ``SAME``, ``VALID``, or pixels before and after the rows and the columns.
      lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count,
        precision, preferred_element_type, out_sharding: those of `jax.lax.conv_general_dilated`.

    Returns:
      ``[N, H', W', D]``.

    >>> images, kernel = jnp.ones((1, 3, 3, 1)), jnp.ones((2, 2, 1, 1))
    >>> layout = ("NHWC", "HWIO", "NHWC")
    >>> result = conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=layout)
    >>> result.ravel().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    with fast_on_cpu():
        result = lax.conv_general_dilated(
            materialize(for_known_devices(images)),
            kernel,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            feature_group_count,
            batch_group_count,
            precision,
            preferred_element_type,
            out_sharding,
        )
    return materialize_cotangent(result)


def conv_relu(
    images: Array,
    kernel: Array,
    bias: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    precision: lax.PrecisionLike = None,
) -> Array:
    """Computes ``relu(convolution(images, kernel) + bias)``, on a CPU in one pass.

    Args:
      images: ``[N, H, W, C]``.
      kernel: ``[h, w, C, D]``.
      bias: ``[D]``.
      window_strides: steps between windows, down and across.
      padding: ``SAME``, ``VALID``, or pixels before and after the rows and the columns.
      precision: that of `jax.lax.conv_general_dilated`; None for `jax.default_matmul_precision`.

    Returns:
      ``[N, H', W', D]``. The gradient is zero where the result is zero.

    >>> images, kernel = jnp.ones((1, 2, 2, 1)), jnp.ones((1, 1, 1, 2))
    >>> conv_relu(images, kernel, jnp.array([1.0, -3.0]), (1, 1), "VALID")[0, 0, 0].tolist()
    [2.0, 0.0]
    """
    spec = conv_spec(
        images.shape[1:3],
        kernel.shape[:2],
        window_strides,
        padding,
        precision=canonicalize_precision(precision),
    )
    kernel, bias = vary_like(images, kernel, bias)
    return _conv_relu(materialize(for_known_devices(images)), kernel, bias, spec)


def _reference_conv_relu(images, kernel, bias, *, spec):
    return jnp.maximum(_marked_convolve(spec, images, kernel) + bias, 0)


def _native_conv_relu(images, kernel, bias, *, spec):
    if not cpu_convolution.can_activate(spec, images, kernel):
        return jnp.maximum(cpu_convolution.convolve(spec, images, kernel) + bias, 0)
    if not cpu_convolution.can_be_native(spec, images, kernel):
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
    bias = bias.astype(jnp.float32)
    ones = jnp.ones_like(bias)
    return cpu_convolution.convolve_and_activate(spec, images, kernel, ones, bias, native.RELU)


_conv_relu_call = with_cpu_kernel(_reference_conv_relu, _native_conv_relu, in_bfloat16=True)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _conv_relu(images: Array, kernel: Array, bias: Array, spec: ConvSpec) -> Array:
    return _conv_relu_call(images, kernel, bias, spec=spec)


def _conv_relu_forward(images, kernel, bias, spec):
    result = _conv_relu(images, kernel, bias, spec)
    return result, (images, kernel, bias, result)


def _conv_relu_backward(spec, residuals, cotangent):
    images, kernel, bias, result = residuals
    cotangent = materialize(jnp.where(result > 0, cotangent, 0))
    _, pull_back = jax.vjp(partial(_marked_convolve, spec), images, kernel)
    return *pull_back(cotangent), channel_sums(cotangent).astype(bias.dtype)


_conv_relu.defvjp(_conv_relu_forward, _conv_relu_backward)


def _marked_convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    with fast_on_cpu():
        return cpu_convolution.xla_convolve(spec, images, kernel)
