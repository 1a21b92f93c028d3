"""Equations that can use a kernel laid out once for the native kernels, and how they use it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import JaxprEqn, Literal, Var

from jaxcnn.ops import conv_forms, dense, native
from jaxcnn.ops.cpu_convolution import window_of
from jaxcnn.ops.cpu_lowering import MARK, NATIVE, primitive_of
from jaxcnn.ops.fused_layers import combine, fused_convolution, fused_product, split_operands
from jaxcnn.ops.native import PackedConvolution
from jaxcnn.ops.programs import Atom, Read, type_of

_PACKABLE = (
    primitive_of(dense.matrix_product),
    primitive_of(fused_convolution),
    primitive_of(fused_product),
    jax.lax.conv_general_dilated_p,
)


@dataclass(frozen=True)
class Packing:
    """How an equation uses a packed kernel.

    Attributes:
      inputs: the operands that change from call to call.
      pack: ``pack(read)`` computes, once, what depends on weights alone.
      apply: ``apply(read, packed)`` computes the equation's result from `inputs` and `packed`.
    """

    inputs: tuple[Atom, ...]
    pack: Callable[[Read], Any]
    apply: Callable[[Read, Any], Array]


def packing_for(equation: JaxprEqn, fixed: set[Var]) -> Packing | None:
    """The packing of an equation that also depends on variables that are not fixed, or None."""

    def is_fixed(atom: Any) -> bool:
        return isinstance(atom, Literal) or atom in fixed

    if equation.primitive not in _PACKABLE:
        return None
    inputs, kernel, *others = equation.invars
    types = [type_of(atom) for atom in (inputs, kernel, equation.outvars[0])]
    are_floats = all(each.dtype == jnp.float32 for each in types)
    if is_fixed(inputs) or not is_fixed(kernel) or not are_floats or not native.can_compute(*types):
        return None
    convolution = _as_convolution(equation, *types)
    channels, summand = split_operands(others, equation.params.get("steps", ()))
    if convolution is None or not all(map(is_fixed, channels)):
        return None
    return _packing_of(equation, convolution, channels, summand)


def _as_convolution(
    equation: JaxprEqn,
    inputs: jax.ShapeDtypeStruct,
    kernel: jax.ShapeDtypeStruct,
    result: jax.ShapeDtypeStruct,
) -> PackedConvolution | None:
    """The convolution that an equation computes; products are one of images one pixel high."""
    primitive, parameters = equation.primitive, equation.params
    if primitive in (primitive_of(dense.matrix_product), primitive_of(fused_product)):
        if parameters.get("transposed", (False, False)) != (False, False):
            return None
        rows = math.prod(inputs.shape[:-1])
        images = (1, 1, rows, inputs.shape[-1])
        return PackedConvolution(images, (1, 1, *kernel.shape), native.Window())
    if primitive is primitive_of(fused_convolution):
        spec = parameters["spec"]
    elif (equation.ctx.xla_metadata or {}).get(MARK) == NATIVE:
        spec = conv_forms.forward_spec(inputs, kernel, result, parameters)
    else:
        return None
    if spec is None or spec.groups != 1:
        return None
    window = window_of(spec)
    can_pack = window.fits(spec.image_size, spec.kernel_size)
    return PackedConvolution(inputs.shape, kernel.shape, window) if can_pack else None


def _packing_of(
    equation: JaxprEqn, convolution: PackedConvolution, channels: Sequence[Atom], summand: Any
) -> Packing:
    """The packing of an equation that computes this convolution and any steps fused with it."""
    inputs, kernel = equation.invars[:2]
    steps = equation.params.get("steps")  # None if nothing follows
    activation = equation.params.get("activation", native.NO_ACTIVATION)

    def pack(read: Read) -> tuple[Array, Array | None, Array | None]:
        packed = convolution.pack(read(kernel).reshape(convolution.kernel))
        if steps is None:
            return packed, None, None
        return packed, *combine(steps, list(map(read, channels)), convolution.kernel[3])

    def apply(read: Read, packed: tuple[Array, Array | None, Array | None]) -> Array:
        images = read(inputs).reshape(convolution.images)
        other = None if summand is None else read(summand).reshape(convolution.result)
        result = convolution(images, *packed, activation, other)
        return result.reshape(type_of(equation.outvars[0]).shape)

    return Packing((inputs,) if summand is None else (inputs, summand), pack, apply)
