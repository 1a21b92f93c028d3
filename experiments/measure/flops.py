"""Model FLOPs: what the mathematics asks for, counted from the jaxpr, the same on every platform.

Only matrix products and convolutions count, as in published figures. One multiply-add is two FLOPs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.interpreters import partial_eval


def model_flops(function: Callable, *args: Any) -> int:
    """FLOPs of one call, on all its devices together.

    A convolution counts ``2 × taps × outputs`` with the taps in the padding included, as Darknet and the papers count
    it, and each of its gradients as much again, however they are written. Along an axis a product joins an input, a tap
    and an output, any two of which fix the third: so there are no more products than the smaller two of the three sizes
    make, and a gradient only exchanges the roles of the three. Those two are the taps and the outputs, but for a kernel
    with more taps than the image has pixels, and for padding or a dilated input that make the output the largest of
    the three: there the bound is lower than taps × outputs, and it is the bound that counts.

    Loops count every round, `cond` its dearest branch (those of `jax.lax.platform_dependent` are the same mathematics),
    `shard_map` and `pmap` one device's work times their devices, repeated work included, `pallas_call` its body times its
    grid. What is no product counts nothing: element by element arithmetic, a reduction, a factorisation.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    Raises:
      ValueError: the number of products depends on values: a loop, a grid or groups whose size is not known when traced.

    >>> model_flops(lambda a, b: a @ b, jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32"))
    48
    """
    jaxpr = _traced(function, args)
    used, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _count(used)


def bytes_once(function: Callable, *args: Any) -> int:
    """Bytes that one call must move at least once: each argument that it uses, whole, and each result.

    A result that is an argument unchanged need not move. A donated argument that is read moves, and so does the result
    that takes its place. On several devices whatever each holds a copy of counts once, except under `pmap`, whose
    arguments hold the copies. Arrays that the function closes over do not count: pass them.

    Args:
      function: traced, not run.
      *args: its arguments, or their `jax.ShapeDtypeStruct`.

    >>> three, four = (jax.ShapeDtypeStruct((size,), "float32") for size in (3, 4))
    >>> bytes_once(lambda a, b, unused: (a, b + 1), three, four, four)  # b read and b + 1 written
    32
    """
    jaxpr = _traced(function, args)
    handed = {id(argument) for argument in jaxpr.invars}
    made = [id(_origin(result, jaxpr)) not in handed for result in jaxpr.outvars]
    _, used = partial_eval.dce_jaxpr(jaxpr, made)
    read = sum(
        _size(argument) for argument, needed in zip(jaxpr.invars, used, strict=True) if needed
    )
    return read + sum(_size(result) for result, new in zip(jaxpr.outvars, made, strict=True) if new)


@dataclass(frozen=True)
class FlopsCheck:
    """FLOPs of one program from three sources, side by side.

    Attributes:
      jaxpr: from `model_flops`.
      compiler: by the compiler's own count, None where it gives none.
      closed_form: by arithmetic from a table of layers, None where there is none.
      disagreement: who differs, by how much and why; empty where they agree.
    """

    jaxpr: float
    compiler: float | None
    closed_form: float | None
    disagreement: str


def compare_flops(
    *,
    jaxpr: float,
    compiler: float | None = None,
    closed_form: float | None = None,
    tolerance: float = 0.2,
) -> FlopsCheck:
    """Three counts of the FLOPs of one program, and whether they agree.

    The closed form must be equal. The compiler counts something else: element by element arithmetic too, but not the
    padding, and a loop's body once. For train steps on 32 images XLA:CPU (jax 0.10) came between 15 % below
    (`cifar_tutorial`: 5×5 kernels over small padded images) and 12 % above (`logistic`: Adam on few products);
    `resnet50` 2 % below.

    Args:
      jaxpr: from `model_flops`.
      compiler: `CompilerCounts.flops`, which is one device's: times the devices where they share the work.
      closed_form: such as `layers.training_step_flops`.
      tolerance: by which share of the jaxpr's the compiler's may differ.

    >>> compare_flops(jaxpr=100, compiler=110, closed_form=100).disagreement
    ''
    >>> compare_flops(jaxpr=100, closed_form=150).disagreement
    "the closed form has 150 FLOP, 50 % more than the jaxpr's 100"
    """
    sentences = []
    if closed_form is not None and closed_form != jaxpr:
        sentences.append(f"the closed form has {_than(closed_form, jaxpr)}")
    if compiler is not None and abs(compiler - jaxpr) > tolerance * jaxpr:
        reason = _MORE if compiler > jaxpr else _LESS
        sentences.append(f"the compiler counts {_than(compiler, jaxpr)}: {reason}")
    return FlopsCheck(jaxpr, compiler, closed_form, "; ".join(sentences))


_MORE = "it counts element by element arithmetic too, and work done twice"
_LESS = "it leaves out the padding, counts a loop's body once, and may not see into library calls"


def _than(value: float, jaxpr: float) -> str:
    share = f"{abs(value / jaxpr - 1):.2g}" if jaxpr else ""
    by = f"{float(share) * 100:g} % " if jaxpr else ""
    return (
        f"{value:.6g} FLOP, {by}{'more' if value > jaxpr else 'less'} than the jaxpr's {jaxpr:.6g}"
    )


def _traced(function: Callable, args: tuple[Any, ...]) -> Any:
    """Its jaxpr; a jitted function is asked itself, because with compiler options it cannot be part of another."""
    closed = (
        function.trace(*args).jaxpr
        if isinstance(function, jax.stages.Wrapped)
        else jax.make_jaxpr(function)(*args)
    )
    return closed.jaxpr


def _count(jaxpr: Any) -> int:
    return sum(_equation(equation) for equation in jaxpr.eqns)


def _equation(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _dot(equation)
    if name == "conv_general_dilated":
        return _convolution(equation)
    if name == "cond":
        return max(_count(_open(branch)) for branch in params["branches"])
    inner = sum(_count(_open(value)) for value in params.values() if hasattr(_open(value), "eqns"))
    if name == "ragged_dot_general" or (name in ("while", "core_map") and inner):
        raise ValueError(f"cannot count {_UNKNOWN[name]}")
    return inner * _repeats(name, params) if inner else 0


_UNKNOWN = {
    "while": "a loop whose length is not known when traced: count its body instead",
    "core_map": "a kernel over cores whose number is not known when traced: count one core's work instead",
    "ragged_dot_general": "a product over groups whose sizes are not known when traced: count that of each group instead",
}


def _repeats(name: str, params: dict[str, Any]) -> int:
    """How often the inner jaxpr of an equation runs, each device's once."""
    if name == "scan":
        return params["length"]
    if (
        name == "shard_map"
    ):  # also `pmap`; inside, shapes are one device's along the axes that it maps
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
    """A jaxpr without its constants; anything else as it is."""
    return getattr(value, "jaxpr", value)


def _dot(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return (
        2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
    )


def _convolution(equation: Any) -> int:
    numbers = equation.params["dimension_numbers"]
    inputs, kernel = (variable.aval.shape for variable in equation.invars)
    outputs = equation.outvars[0].aval.shape
    channels = (
        outputs[numbers.out_spec[1]] * kernel[numbers.rhs_spec[1]]
    )  # each output's, with its group's inputs'
    axes = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    sizes = (sorted((inputs[axis], kernel[tap], outputs[out])) for axis, tap, out in axes)
    return (
        2
        * outputs[numbers.out_spec[0]]
        * channels
        * math.prod(least * middle for least, middle, _ in sizes)
    )


def _origin(variable: Any, jaxpr: Any) -> Any:
    """The variable that this one is a copy of, handed on through `jit`."""
    for equation in jaxpr.eqns:
        places = [place for place, result in enumerate(equation.outvars) if result is variable]
        if equation.primitive.name != "jit" or not places:
            continue
        inner = _open(equation.params["jaxpr"])
        within = _origin(inner.outvars[places[0]], inner)
        handed = [
            argument
            for argument, name in zip(equation.invars, inner.invars, strict=True)
            if name is within
        ]
        return _origin(handed[0], jaxpr) if handed else variable
    return variable


def _size(variable: Any) -> int:
    return variable.aval.size * variable.aval.dtype.itemsize
