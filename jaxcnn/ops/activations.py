"""The activations of `jax.nn` that the kernels apply, in traced programs and as functions.

`activation_of` and `activation_program` recognize them in a traced program; `apply_activation`
computes them without the kernels.
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
}
# Functions that JAX 0.10 traces as several equations, which use their argument more than once.
_PROGRAMS: dict[Callable[[Array], Array], Activation] = {
    jax.nn.gelu: Activation(Kind.GELU),
    functools.partial(jax.nn.gelu, approximate=False): Activation(Kind.EXACT_GELU),
}
_LEAKY_RELU = functools.partial(jax.nn.leaky_relu, negative_slope=0.5)  # with any slope


def activation_of(equation: JaxprEqn, value: Var) -> Activation:
    """The activation that a single equation applies; `NO_ACTIVATION` for all others."""
    first, *others = equation.invars
    if first is not value:
        return NO_ACTIVATION
    text = _text(equation)
    if equation.primitive.name == "max" and others and isinstance(others[0], Literal):
        return native.RELU if np.all(others[0].val == 0) else NO_ACTIVATION
    for function, activation in (_ACTIVATIONS | _PROGRAMS).items():
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


def activation_program(jaxpr: Jaxpr, first: int, value: Var) -> tuple[Activation, range]:
    """The activation of `value` that begins with an equation, and the numbers of its equations.

    Args:
      jaxpr: the program.
      first: the number of the equation.
      value: the activation's argument.

    Returns:
      `NO_ACTIVATION` and no equations if there is none of several equations.
    """
    for function, activation in _PROGRAMS.items():
        pattern = jax.make_jaxpr(function)(type_of(value)).jaxpr
        numbers = range(first, min(first + len(pattern.eqns), len(jaxpr.eqns)))
        if _computes([jaxpr.eqns[number] for number in numbers], value, pattern):
            return activation, numbers
    return NO_ACTIVATION, range(0)


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
        is_operation = equation.primitive is expected.primitive
        if not is_operation or str(equation.params) != str(expected.params):
            return False
        if not all(map(is_same, equation.invars, expected.invars)):
            return False
        counterparts.update(zip(expected.outvars, equation.outvars, strict=True))
    return True


def apply_activation(activation: Activation, values: Array) -> Array:
    """``activation(values)``, by the function of `jax.nn`."""
    if activation == NO_ACTIVATION:
        return values
    if activation.kind == Kind.LEAKY_RELU:
        return jax.nn.leaky_relu(values, activation.low)
    functions = (_ACTIVATIONS | _PROGRAMS).items()
    return next(f for f, known in functions if known == activation)(values)
