"""A convolution, what follows it for each channel, a summand and an activation, as one operation.

On a CPU its kernel applies them to the sums before these are stored. On other platforms it is the
operations one by one.
"""

from collections.abc import Sequence
from typing import TypeVar

import jax.numpy as jnp
from jax import Array

from jaxcnn.ops import cpu_convolution
from jaxcnn.ops.activations import apply_activation
from jaxcnn.ops.cpu_lowering import fast_on_cpu, with_cpu_kernel

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


def _reference(images, kernel, *others, spec, steps, activation):
    channels, summand = split_operands(others, steps)
    with fast_on_cpu():
        result = cpu_convolution.xla_convolve(spec, images, kernel)
    dtype = result.dtype
    for step, channel in zip(steps, channels, strict=True):
        wide = jnp.promote_types(dtype, channel.dtype)
        result = PER_CHANNEL[step](result.astype(wide), channel.astype(wide))
    if summand is not None:
        result = result + summand
    return apply_activation(activation, result).astype(dtype)


def _kernel(images, kernel, *others, spec, steps, activation):
    channels, summand = split_operands(others, steps)
    dtype = images.dtype
    if not cpu_convolution.can_be_native(spec, images, kernel):
        images, kernel = images.astype(jnp.float32), kernel.astype(jnp.float32)
    factors, bias = combine(steps, channels, kernel.shape[-1])
    return cpu_convolution.convolve_and_activate(
        spec, images, kernel, factors, bias, activation, summand
    ).astype(dtype)


fused_convolution = with_cpu_kernel(_reference, _kernel, in_bfloat16=True)
