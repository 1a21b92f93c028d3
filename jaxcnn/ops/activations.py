"""The activations of `jax.nn` that the kernels apply, in traced programs and as functions.

`activation_at` recognizes them in a traced program; `apply_activation` computes them without the
kernels.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from jaxcnn.ops import native
from jaxcnn.ops.native import NO_ACTIVATION, Activation, Kind
from jaxcnn.ops.programs import Atom, type_of

_ACTIVATIONS: dict[Callable[[Array], Array], Activation] = {
    jax.nn.relu: native.RELU,
    jax.nn.relu6: Activation(low=0.0, high=6.0),
    jax.nn.sigmoid: Activation(Kind.SIGMOID),
    jax.nn.silu: Activation(Kind.SILU),
    jax.nn.hard_swish: Activation(Kind.HARD_SWISH),
    jax.nn.leaky_relu: Activation(Kind.LEAKY_RELU, low=0.01),
    jax.nn.gelu: Activation(Kind.GELU),
    functools.partial(jax.nn.gelu, approximate=False): Activation(Kind.EXACT_GELU),
}
_LEAKY_RELU = functools.partial(jax.nn.leaky_relu, negative_slope=0.5)  # with any slope


def activation_at(jaxpr: Jaxpr, first: int, value: Var) -> tuple[Activation, range]:
    """The activation of `value` that begins with an equation, and the numbers of its equations.

    JAX traces some functions of `jax.nn` as one equation, and others, such as GELU, as several.

    Args:
      jaxpr: the program.
      first: the number of the equation.
      value: the activation's argument.

    Returns:
      `NO_ACTIVATION` and no equations if none begins there.
    """
    for function, activation in _ACTIVATIONS.items():
        pattern = _trace(function, type_of(value))
        numbers = range(first, min(first + len(pattern.eqns), len(jaxpr.eqns)))
        if _computes([jaxpr.eqns[number] for number in numbers], value, pattern):
            return activation, numbers
    activation = _activation_with_literal(jaxpr.eqns[first], value)
    return activation, range(first, first + (activation != NO_ACTIVATION))


def _activation_with_literal(equation: JaxprEqn, value: Var) -> Activation:
    """``max(value, 0)``, or a leaky ReLU with any slope; `NO_ACTIVATION` for all others."""
    if len(equation.invars) != 2 or equation.invars[0] is not value:
        return NO_ACTIVATION
    literal = equation.invars[1]
    if not isinstance(literal, Literal):
        return NO_ACTIVATION
    if equation.primitive.name == "max":
        return native.RELU if np.all(literal.val == 0) else NO_ACTIVATION
    leaky_relu = _trace(_LEAKY_RELU, type_of(value)).eqns
    if len(leaky_relu) == 1 and _operation(equation) == _operation(leaky_relu[0]):
        return Activation(Kind.LEAKY_RELU, low=float(literal.val))
    return NO_ACTIVATION


@functools.cache
def _trace(function: Callable[[Array], Array], values: jax.ShapeDtypeStruct) -> Jaxpr:
    return jax.make_jaxpr(function)(values).jaxpr


def _operation(equation: JaxprEqn) -> str:
    """What an equation computes, without the names of its variables."""
    body = equation.params.get("jaxpr") or equation.params.get("call_jaxpr") or equation.params
    return f"{equation.primitive.name} {body}"


def _computes(equations: Sequence[JaxprEqn], value: Var, pattern: Jaxpr) -> bool:
    """Whether equations are those of a pattern whose argument is `value`."""
    if len(equations) != len(pattern.eqns):
        return False
    counterparts: dict[Var, Atom] = {pattern.invars[0]: value}

    def is_same(atom: Atom, expected: Atom) -> bool:
        if isinstance(expected, Literal):
            return isinstance(atom, Literal) and np.array_equal(atom.val, expected.val)
        return atom is counterparts[expected]

    for equation, expected in zip(equations, pattern.eqns, strict=True):
        if len(equation.invars) != len(expected.invars):
            return False
        is_operation = _operation(equation) == _operation(expected)
        if not is_operation or not all(map(is_same, equation.invars, expected.invars)):
            return False
        counterparts.update(zip(expected.outvars, equation.outvars, strict=True))
    return True


def apply_activation(activation: Activation, values: Array) -> Array:
    """``activation(values)``, by the function of `jax.nn`."""
    if activation == NO_ACTIVATION:
        return values
    if activation.kind == Kind.LEAKY_RELU:
        return jax.nn.leaky_relu(values, activation.low)
    return next(f for f, known in _ACTIVATIONS.items() if known == activation)(values)
