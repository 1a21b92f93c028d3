"""Model FLOPs: what the mathematics asks for, counted from the jaxpr, the same on every platform.

Only matrix products and convolutions count, as in published figures. One multiply-add is two FLOPs.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import partial_eval


def model_flops(function: Callable, *args: Any) -> int:
    """FLOPs of one call.

    A convolution counts ``2 × taps × outputs`` with the taps in the padding included, as Darknet and the papers count
    it. Written as a gradient, the same convolution has zeros between or around its operands; those are left out by
    taking the smaller of two counts, by outputs and by inputs, so that each gradient costs what the forward pass did.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    Raises:
      ValueError: a loop whose length is not known when traced.

    >>> model_flops(lambda a, b: a @ b, jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32"))
    48
    """
    closed = jax.make_jaxpr(function)(*args)
    used, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    return _count(used)


def _count(jaxpr: Any) -> int:
    return sum(_equation(equation) for equation in jaxpr.eqns)


def _equation(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _dot(equation)
    if name == "conv_general_dilated":
        return _convolution(equation)
    if name == "cond":  # one branch runs; those of platform_dependent are the same mathematics spelt differently
        return max(_count(branch.jaxpr) for branch in params["branches"])
    inner = sum(_count(getattr(value, "jaxpr", value)) for value in params.values() if _is_jaxpr(value))
    if name == "while" and inner:
        raise ValueError("cannot count a loop whose length is not known when traced: count its body instead")
    return inner * params.get("length", 1) if name == "scan" else inner


def _is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _dot(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _convolution(equation: Any) -> int:
    numbers, params = equation.params["dimension_numbers"], equation.params
    inputs, kernel = (variable.aval.shape for variable in equation.invars)
    outputs = equation.outvars[0].aval.shape
    taps = math.prod(kernel[axis] for axis in numbers.rhs_spec[2:])
    channels_in = kernel[numbers.rhs_spec[1]]  # per group
    channels_out = kernel[numbers.rhs_spec[0]] // params["feature_group_count"] // params["batch_group_count"]
    by_outputs = math.prod(outputs) * channels_in
    by_inputs = math.prod(inputs) * channels_out
    return 2 * taps * min(by_outputs, by_inputs)
