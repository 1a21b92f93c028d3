"""A convolution or a matrix product, and what follows it, as one operation.

Factors and biases for each channel follow it, then a summand, then an activation. On a CPU the
kernel applies them to the sums before these are stored. On other platforms they are operations one
by one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import JaxprEqn

from jaxcnn.ops import conv_forms, cpu_convolution, dense, native
from jaxcnn.ops.activations import apply_activation
from jaxcnn.ops.conv_spec import conv_spec
from jaxcnn.ops.cpu_lowering import MARK, fast_on_cpu, primitive_of, with_cpu_kernel
from jaxcnn.ops.programs import type_of

MIN_OUTPUTS = 16  # of a convolution; fewer leave most of a vector register empty
PER_CHANNEL = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply}

T = TypeVar("T")


def split_operands(others: Sequence[T], steps: Sequence[str]) -> tuple[Sequence[T], T | None]:
    """The operands for each channel, one for each step, and the summand if there is one."""
    count = len(steps)
    return others[:count], others[count] if len(others) > count else None


def combine(steps: Sequence[str], channels: Sequence[Array], outputs: int) -> tuple[Array, Array]:
    """One factor and one bias, ``f32[outputs]``, that do the same as all steps."""
    factors, bias = jnp.ones(outputs, jnp.float32), jnp.zeros(outputs, jnp.float32)
    for step, channel in zip(steps, channels, strict=True):
        channel = channel.astype(jnp.float32)
        if step == "mul":
            factors, bias = factors * channel, bias * channel
        else:
            bias = bias + channel if step == "add" else bias - channel
    return factors, bias


def _apply_steps(result, others, steps, activation):
    """The operations after a convolution or a product, one by one."""
    channels, summand = split_operands(others, steps)
    dtype = result.dtype
    for step, channel in zip(steps, channels, strict=True):
        wide = jnp.promote_types(dtype, channel.dtype)
        result = PER_CHANNEL[step](result.astype(wide), channel.astype(wide))
    if summand is not None:
        result = result + summand
    return apply_activation(activation, result).astype(dtype)


def _reference_fused_convolution(images, kernel, *others, spec, steps, activation):
    with fast_on_cpu():
        result = cpu_convolution.xla_convolve(spec, images, kernel)
    return _apply_steps(result, others, steps, activation)


def _native_fused_convolution(images, kernel, *others, spec, steps, activation):
    channels, summand = split_operands(others, steps)
    dtype = images.dtype
    if not cpu_convolution.can_be_native(spec, images, kernel):
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
    factors, bias = combine(steps, channels, kernel.shape[-1])
    return cpu_convolution.convolve_and_activate(
        spec, images, kernel, factors, bias, activation, summand
    ).astype(dtype)


fused_convolution = with_cpu_kernel(
    _reference_fused_convolution, _native_fused_convolution, in_bfloat16=True
)


def _reference_fused_product(inputs, kernel, *others, steps, activation, precision):
    contracted = (inputs.ndim - 1,), (0,)
    result = lax.dot_general(inputs, kernel, (contracted, ((), ())), precision=precision)
    return _apply_steps(result, others, steps, activation)


def _native_fused_product(inputs, kernel, *others, steps, activation, precision):
    """As a convolution of images one pixel high."""
    images = inputs.reshape(1, 1, -1, inputs.shape[-1])
    channels, summands = others[: len(steps)], others[len(steps) :]
    rows = [summand.reshape(1, 1, -1, kernel.shape[1]) for summand in summands]
    spec = conv_spec(images.shape[1:3], (1, 1), (1, 1), "VALID", precision=precision)
    operands = images, kernel[None, None], *channels, *rows
    result = _native_fused_convolution(*operands, spec=spec, steps=steps, activation=activation)
    return result.reshape(*inputs.shape[:-1], kernel.shape[1])


fused_product = with_cpu_kernel(_reference_fused_product, _native_fused_product, in_bfloat16=True)


def layer_of(equation: JaxprEqn) -> Callable[..., Array] | None:
    """An equation's convolution or product as one of the functions above; None if it has none.

    Args:
      equation: of a traced program. That is a convolution within `fast_on_cpu`, or a product
        ``[..., K]`` by ``[K, M]``.

    Returns:
      A function of the equation's operands and of those of what follows, with the keywords
      ``steps`` and ``activation``.
    """
    return _convolution_of(equation) or _product_of(equation)


def _convolution_of(equation: JaxprEqn) -> Callable[..., Array] | None:
    """A convolution with the steps after it; None if the equation is none that can be fused."""
    if equation.primitive is not jax.lax.conv_general_dilated_p:
        return None
    if MARK not in (equation.ctx.xla_metadata or {}):
        return None
    images, kernel, result = map(type_of, (*equation.invars, *equation.outvars))
    spec = conv_forms.forward_spec(images, kernel, result, equation.params)
    if spec is None or kernel.shape[-1] < MIN_OUTPUTS:
        return None
    if not cpu_convolution.can_activate(spec, images, kernel):
        return None
    can_fuse = native.can_compute(images, kernel)
    return functools.partial(fused_convolution, spec=spec) if can_fuse else None


def _product_of(equation: JaxprEqn) -> Callable[..., Array] | None:
    """A product ``[..., K]`` by ``[K, M]`` with what follows it; None for other equations."""
    parameters = equation.params
    if equation.primitive is primitive_of(dense.matrix_product):
        is_dense = parameters["transposed"] == (False, False)
    elif equation.primitive is jax.lax.dot_general_p:
        inputs, kernel, result = map(type_of, (*equation.invars, *equation.outvars))
        contracted = (inputs.ndim - 1,), (0,)
        is_dense = kernel.ndim == 2 and parameters["dimension_numbers"] == (contracted, ((), ()))
        is_dense = is_dense and inputs.dtype == kernel.dtype == result.dtype == jnp.float32
    else:
        return None
    if not is_dense or not native.can_compute(*map(type_of, equation.invars)):
        return None
    return functools.partial(fused_product, precision=parameters["precision"])
