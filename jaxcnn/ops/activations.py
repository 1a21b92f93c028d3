"""The activations of `jax.nn` that the kernels apply: in programs, and computed without them.

`activation_of` recognizes them in a traced program; `apply_activation` computes them without the
kernels.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax import Array
from jax.extend.core import JaxprEqn, Literal, Var

from jaxcnn.ops import native
from jaxcnn.ops.native import NO_ACTIVATION, Activation, Kind
from jaxcnn.ops.programs import type_of

_ACTIVATIONS: dict[Callable[[Array], Array], Activation] = {
    jax.nn.relu: native.RELU,
    jax.nn.relu6: Activation(low=0.0, high=6.0),
    jax.nn.sigmoid: Activation(Kind.SIGMOID),
    jax.nn.silu: Activation(Kind.SILU),
    jax.nn.gelu: Activation(Kind.GELU),
    jax.nn.hard_swish: Activation(Kind.HARD_SWISH),
    jax.nn.leaky_relu: Activation(Kind.LEAKY_RELU, low=0.01),
}
_LEAKY_RELU = functools.partial(jax.nn.leaky_relu, negative_slope=0.5)  # with any slope


def activation_of(equation: JaxprEqn, value: Var) -> Activation:
    """The activation that an equation applies; `NO_ACTIVATION` for all others."""
    first, *others = equation.invars
    if first is not value:
        return NO_ACTIVATION
    text = _text(equation)
    if equation.primitive.name == "max" and others and isinstance(others[0], Literal):
        return native.RELU if np.all(others[0].val == 0) else NO_ACTIVATION
    for function, activation in _ACTIVATIONS.items():
        if not others and text == _text_of(function, type_of(value)):
            return activation
    slope = others[0] if len(others) == 1 else None
    if isinstance(slope, Literal) and text == _text_of(_LEAKY_RELU, type_of(value)):
        return Activation(Kind.LEAKY_RELU, low=float(slope.val))
    return NO_ACTIVATION


def _text(equation: JaxprEqn) -> str:
    """What an equation computes, without the names of its variables."""
    body = equation.params.get("jaxpr") or equation.params.get("call_jaxpr") or ""
    return f"{equation.primitive.name} {body}"


@functools.cache
def _text_of(function: Callable[[Array], Array], values: jax.ShapeDtypeStruct) -> str | None:
    """The text of a function that is a single equation."""
    equations = jax.make_jaxpr(function)(values).jaxpr.eqns
    return _text(equations[0]) if len(equations) == 1 else None


def apply_activation(activation: Activation, values: Array) -> Array:
    """``activation(values)``, by the function of `jax.nn`."""
    if activation == NO_ACTIVATION:
        return values
    if activation.kind == Kind.LEAKY_RELU:
        return jax.nn.leaky_relu(values, activation.low)
    return next(f for f, known in _ACTIVATIONS.items() if known == activation)(values)
