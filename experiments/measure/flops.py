"""Model FLOPs and bytes of a function, counted from its jaxpr, the same on every platform.

Only matrix products and convolutions count, as in published figures. One multiply-add is two FLOPs.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import optax
from jax.interpreters import partial_eval

from jaxcnn.ops.programs import inner_jaxprs
from jaxcnn.training import TrainStep

# Keeps its state and returns the gradients.
_NO_OPTIMIZER = optax.GradientTransformation(
    lambda params: (), lambda grads, state, params=None: (grads, state)
)


def model_flops(function: Callable, *args: Any) -> int:
    """FLOPs of one call, on all its devices together.

    A convolution counts ``2 × taps × outputs``, taps in the padding included, as Darknet and the
    papers count it, and each of its gradients counts the same, however it is written. Along an
    axis, a product joins an input, a tap and an output, any two of which determine the third: so
    there are at most as many products as the product of the smaller two of the three sizes, and a
    gradient only exchanges the roles of the three. These two are taps and outputs, unless a kernel
    has more taps than the image has pixels, or padding or a dilated input makes the output the
    largest of the three: then this bound is lower than taps × outputs, and the bound counts.

    Loops count every iteration; `cond` its most expensive branch (the branches of
    `jax.lax.platform_dependent` are the same mathematics); `shard_map` and `pmap` one device's work
    times the devices, replicated work included; `pallas_call` its body times its grid. Anything
    that is not a product counts nothing: elementwise arithmetic, a reduction, a factorization. Of a
    `TrainStep` the optimizer does not count: Muon multiplies matrices, but not for the model.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    Raises:
      ValueError: the number of products depends on values: a loop, a grid or groups whose size is
        not known when traced.

    >>> a, b = jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32")
    >>> model_flops(lambda a, b: a @ b, a, b)
    48
    """
    return _count(_without_optimizer(function, *args))


def product_dtypes(function: Callable, *args: Any) -> dict[str, int]:
    """How many matrix products and convolutions are of each dtype, that of their wider operand.

    As in `model_flops`, the optimizer of a `TrainStep` does not count. Each product of the program
    counts once, in a loop too.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    >>> a, b = jax.ShapeDtypeStruct((2, 3), "bfloat16"), jax.ShapeDtypeStruct((3, 4), "bfloat16")
    >>> product_dtypes(lambda a, b: (a @ b) @ b.T.astype("float32"), a, b)
    {'bfloat16': 1, 'float32': 1}
    """
    return dict(Counter(_product_dtypes(_without_optimizer(function, *args))))


def _without_optimizer(function: Callable, *args: Any) -> Any:
    """The jaxpr of a call, without what no result depends on."""
    if isinstance(function, TrainStep):
        function = dataclasses.replace(function, optimizer=_NO_OPTIMIZER)
    jaxpr = traced(function, *args)
    used, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return used


def _product_dtypes(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            dtypes = (variable.aval.dtype for variable in equation.invars)
            yield max(dtypes, key=lambda dtype: dtype.itemsize).name
        for inner in inner_jaxprs(equation):
            yield from _product_dtypes(inner)


def compulsory_bytes(function: Callable, *args: Any) -> int:
    """Bytes that one call must move at least: each argument that it uses and each result, once.

    A result that is an unchanged argument need not move. A donated argument that is read moves, and
    so does the result that takes its place. On several devices, replicated arrays count once,
    except under `pmap`, whose arguments contain the copies. Arrays that the function closes over do
    not count: pass them as arguments.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    >>> three, four = (jax.ShapeDtypeStruct((size,), "float32") for size in (3, 4))
    >>> # b is read and b + 1 is written
    >>> compulsory_bytes(lambda a, b, unused: (a, b + 1), three, four, four)
    32
    """
    jaxpr = traced(function, *args)
    arguments, origins = {id(argument) for argument in jaxpr.invars}, _origins(jaxpr)
    computed = [id(origins.get(id(result), result)) not in arguments for result in jaxpr.outvars]
    _, used = partial_eval.dce_jaxpr(jaxpr, computed)
    read = sum(_size(item) for item, is_used in zip(jaxpr.invars, used, strict=True) if is_used)
    written = sum(
        _size(item) for item, is_new in zip(jaxpr.outvars, computed, strict=True) if is_new
    )
    return read + written


def traced(function: Callable, *args: Any) -> Any:
    """The jaxpr of a call.

    A jitted function is traced by itself, because one with compiler options cannot be part of
    another.
    """
    if isinstance(function, jax.stages.Wrapped):
        return function.trace(*args).jaxpr.jaxpr
    return jax.make_jaxpr(function)(*args).jaxpr


def _count(jaxpr: Any) -> int:
    return sum(equation_flops(equation) for equation in jaxpr.eqns)


def equation_flops(equation: Any) -> int:
    """FLOPs of one equation of a jaxpr, counted as `model_flops` does."""
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _count_dot(equation)
    if name == "conv_general_dilated":
        return _count_convolution(equation)
    if name == "cond":
        return max(_count(_open(branch)) for branch in params["branches"])
    inner = sum(_count(_open(value)) for value in params.values() if hasattr(_open(value), "eqns"))
    if name == "ragged_dot_general" or (name in ("while", "core_map") and inner):
        raise ValueError(f"cannot count {_UNKNOWN[name]}")
    return inner * _repetitions(name, params) if inner else 0


_UNKNOWN = {
    "while": "a loop whose length is not known when traced: count its body instead",
    "core_map": (
        "a kernel over cores whose number is not known when traced: count one core's work instead"
    ),
    "ragged_dot_general": (
        "a product over groups whose sizes are not known when traced: "
        "count the product of each group instead"
    ),
}


def _repetitions(name: str, params: dict[str, Any]) -> int:
    """The number of times that the inner jaxpr of an equation runs, all devices together."""
    if name == "scan":
        return params["length"]
    if name == "shard_map":  # `pmap` too; inside, shapes are one device's along the mapped axes
        return math.prod(params["mesh"].shape[axis] for axis in params["newly_manual_axes"])
    if name == "pallas_call":
        grid = params["grid_mapping"].grid
        if not all(isinstance(size, int) for size in grid):
            raise ValueError(
                "cannot count a kernel whose grid is not known when traced: count its body instead"
            )
        return math.prod(grid)
    return 1


def _open(value: Any) -> Any:
    """A jaxpr without its constants; any other value unchanged."""
    return getattr(value, "jaxpr", value)


def _count_dot(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    outputs = math.prod(equation.outvars[0].aval.shape)
    return 2 * outputs * math.prod(left[axis] for axis in contracted)


def _count_convolution(equation: Any) -> int:
    numbers = equation.params["dimension_numbers"]
    inputs, kernel = (variable.aval.shape for variable in equation.invars)
    outputs = equation.outvars[0].aval.shape
    batch = outputs[numbers.out_spec[0]]
    # every output channel with every input channel of its group
    channels = outputs[numbers.out_spec[1]] * kernel[numbers.rhs_spec[1]]
    axes = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    sizes = (sorted((inputs[i], kernel[k], outputs[o])) for i, k, o in axes)
    products = math.prod(smallest * middle for smallest, middle, _ in sizes)
    return 2 * batch * channels * products


def _origins(jaxpr: Any) -> dict[int, Any]:
    """The original of each variable that `jit` passes on unchanged, by the copy's id.

    Copies are of arguments, or of what an equation other than a `jit` computed.
    """
    origins: dict[int, Any] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name != "jit":
            continue
        inner = _open(equation.params["jaxpr"])
        inner_origins = _origins(inner)
        pairs = zip(inner.invars, equation.invars, strict=True)
        arguments = {id(parameter): argument for parameter, argument in pairs}
        for result, inner_result in zip(equation.outvars, inner.outvars, strict=True):
            inner_origin = inner_origins.get(id(inner_result), inner_result)
            if (argument := arguments.get(id(inner_origin))) is not None:
                origins[id(result)] = origins.get(id(argument), argument)
    return origins


def _size(variable: Any) -> int:
    return variable.aval.size * variable.aval.dtype.itemsize
