"""Convolutions that are fast on a CPU too, including their gradients and inside loops.

A convolution and its gradients with respect to the images and to the kernel are three functions.
Each is linear in both of its arguments, and each is a gradient of the other two. On a CPU

- in float32 they are the compiled kernels of `jaxcnn.ops.native`, if those are available;
- otherwise they are convolutions in XLA's fast layout.

XLA:CPU uses its fast convolution library only for the layout NHWC x HWIO -> NHWC. The gradients
that JAX derives have other layouts. XLA repairs them at the top level of a program but not in the
body of a loop (jax issue #12868), where they run tens of times slower. The gradients of a grouped
convolution are slow too, so a few groups are computed as one convolution each.

GPU and TPU programs keep JAX's own convolutions and gradients.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from jaxcnn.ops import cpu_convolution
from jaxcnn.ops.channels import channel_sums
from jaxcnn.ops.conv_spec import NHWC, ConvSpec, conv_spec
from jaxcnn.ops.materialize import materialize

MAX_GROUPS = 8  # AlexNet has 2; each group adds three convolutions to the program


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
    """`jax.lax.conv_general_dilated` with the same arguments, and gradients that a CPU runs fast.

    Two-dimensional convolutions with `NHWC` dimension numbers have the fast lowering, with up to
    `MAX_GROUPS` groups and any stride, padding and kernel dilation. Everything else (a dilated
    input, batch groups, a preferred element type, an output sharding) is passed on to `jax.lax`.

    Reverse-mode differentiation and `jax.vmap` work and can be nested. JAX refuses forward mode
    (`jax.jvp`), as it does for every `jax.custom_vjp` function.

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
    >>> result = conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=NHWC)
    >>> result.ravel().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    has_fast_lowering = (
        dimension_numbers == NHWC
        and len(window_strides) == 2
        and set(lhs_dilation or (1,)) == {1}
        and _has_few_valid_groups(images, kernel, feature_group_count)
        and batch_group_count == 1
        and preferred_element_type is None
        and out_sharding is None
    )
    if not has_fast_lowering:
        return lax.conv_general_dilated(
            images,
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
    dilation = rhs_dilation or (1, 1)
    spec = conv_spec(
        images, kernel, window_strides, padding, dilation, feature_group_count, precision
    )
    return _convolve(materialize(images), kernel, spec)


def _has_few_valid_groups(images: Array, kernel: Array, groups: int) -> bool:
    """Whether there are at most `MAX_GROUPS`, which divide the channels and the outputs."""
    divide_channels = images.shape[-1] == groups * kernel.shape[-2]
    divide_outputs = kernel.shape[-1] % groups == 0
    return groups <= MAX_GROUPS and divide_channels and divide_outputs


def conv_relu(
    images: Array,
    kernel: Array,
    bias: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """Computes ``relu(convolution(images, kernel) + bias)``, on a CPU in one pass.

    Args:
      images: ``[N, H, W, C]``.
      kernel: ``[h, w, C, D]``.
      bias: ``[D]``.
      window_strides: steps between windows, down and across.
      padding: ``SAME``, ``VALID``, or pixels before and after the rows and the columns.

    Returns:
      ``[N, H', W', D]``. The gradient is zero where the result is zero.

    >>> images, kernel = jnp.ones((1, 2, 2, 1)), jnp.ones((1, 1, 1, 2))
    >>> conv_relu(images, kernel, jnp.array([1.0, -3.0]), (1, 1), "VALID")[0, 0, 0].tolist()
    [2.0, 0.0]
    """
    spec = conv_spec(images, kernel, window_strides, padding)
    return _conv_relu(materialize(images), kernel, bias, spec)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(images: Array, kernel: Array, spec: ConvSpec) -> Array:
    """``[N, H, W, C]`` and ``[h, w, C, D]`` to ``[N, H', W', D]``."""
    return _by_platform(cpu_convolution.convolve, _xla_convolve, spec, images, kernel)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _image_gradient(kernel: Array, cotangent: Array, spec: ConvSpec) -> Array:
    """``[h, w, C, D]`` and ``[N, H', W', D]`` to ``[N, H, W, C]``."""
    cpu = cpu_convolution.image_gradient
    return _by_platform(cpu, _xla_image_gradient, spec, kernel, cotangent)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _kernel_gradient(images: Array, cotangent: Array, spec: ConvSpec) -> Array:
    """``[N, H, W, C]`` and ``[N, H', W', D]`` to ``[h, w, C, D]``."""
    cpu = cpu_convolution.kernel_gradient
    return _by_platform(cpu, _xla_kernel_gradient, spec, images, cotangent)


def _forward_of(function: Callable) -> Callable:
    """The forward rule of a function of two arrays: both arrays are its residuals."""
    return lambda first, second, spec: (function(first, second, spec), (first, second))


def _convolve_backward(spec, residuals, cotangent):
    images, kernel = residuals
    cotangent = materialize(cotangent)
    return _image_gradient(kernel, cotangent, spec), _kernel_gradient(images, cotangent, spec)


def _image_gradient_backward(spec, residuals, images):
    kernel, cotangent = residuals
    return _kernel_gradient(images, cotangent, spec), _convolve(images, kernel, spec)


def _kernel_gradient_backward(spec, residuals, kernel):
    images, cotangent = residuals
    return _image_gradient(kernel, cotangent, spec), _convolve(images, kernel, spec)


_convolve.defvjp(_forward_of(_convolve), _convolve_backward)
_image_gradient.defvjp(_forward_of(_image_gradient), _image_gradient_backward)
_kernel_gradient.defvjp(_forward_of(_kernel_gradient), _kernel_gradient_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _conv_relu(images: Array, kernel: Array, bias: Array, spec: ConvSpec) -> Array:
    def default(images, kernel, bias):
        return jnp.maximum(_xla_convolve(spec, images, kernel) + bias, 0)

    cpu = partial(cpu_convolution.conv_relu, spec)
    return lax.platform_dependent(images, kernel, bias, cpu=cpu, default=default)


def _conv_relu_forward(images, kernel, bias, spec):
    result = _conv_relu(images, kernel, bias, spec)
    return result, (images, kernel, bias, result)


def _conv_relu_backward(spec, residuals, cotangent):
    images, kernel, bias, result = residuals
    cotangent = materialize(jnp.where(result > 0, cotangent, 0))
    image_gradient = _image_gradient(kernel, cotangent, spec)
    kernel_gradient = _kernel_gradient(images, cotangent, spec)
    return image_gradient, kernel_gradient, channel_sums(cotangent).astype(bias.dtype)


_conv_relu.defvjp(_conv_relu_forward, _conv_relu_backward)


def _by_platform(cpu: Callable, default: Callable, spec: ConvSpec, *arrays: Array) -> Array:
    """One function of a spec and arrays on a CPU, group by group, and another elsewhere."""
    cpu = partial(cpu_convolution.apply_to_groups, cpu, spec)
    return lax.platform_dependent(*arrays, cpu=cpu, default=partial(default, spec))


def _xla_convolve(spec: ConvSpec, images: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(
        images,
        kernel,
        spec.strides,
        spec.pads,
        rhs_dilation=spec.dilation,
        dimension_numbers=NHWC,
        feature_group_count=spec.groups,
        precision=spec.precision,
    )


def _xla_image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    shape = (len(cotangent), *spec.image_size, kernel.shape[2] * spec.groups)
    images = jax.ShapeDtypeStruct(shape, cotangent.dtype)
    transpose = jax.linear_transpose(lambda images: _xla_convolve(spec, images, kernel), images)
    return transpose(cotangent)[0]


def _xla_kernel_gradient(spec: ConvSpec, images: Array, cotangent: Array) -> Array:
    shape = (*spec.kernel_size, images.shape[-1] // spec.groups, cotangent.shape[-1])
    kernel = jax.ShapeDtypeStruct(shape, images.dtype)
    transpose = jax.linear_transpose(lambda kernel: _xla_convolve(spec, images, kernel), kernel)
    return transpose(cotangent)[0]
