"""Inference with fixed weights: on a CPU they are laid out for the kernels once, not in each call.

`freeze` divides the program of an inference. What depends on the weights alone, such as the factors
of batch norm and the kernels in the layout in which the convolutions read them, is computed once;
what depends on the other arguments is compiled with these results as its arguments.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from jaxcnn.ops import native
from jaxcnn.ops.inference_fusion import fuse_layers
from jaxcnn.ops.kernel_packing import Packing, packing_for
from jaxcnn.ops.programs import Read, compute_equation, evaluate, variables_of


def freeze(
    function: Callable[..., Any],
    *weights: Any,
    compiler_options: dict[str, str | bool] | None = None,
) -> Callable[..., Any]:
    """The function with its first arguments fixed, compiled.

    On a CPU the kernels of convolutions without groups and of dense layers are laid out for the
    native kernels once, and transformed for Winograd's method. That applies in float32, to
    convolutions within `fast_on_cpu`, which those of an accelerated model are, and to dense layers
    that are large or have a bias. `fuse_layers` is applied as well. On other platforms it is the
    function, compiled.

    Args:
      function: of arrays, in any containers.
      weights: its first arguments. The arrays are kept, so they must not be donated elsewhere; the
        layouts take about as much memory again, up to four times as much for 3×3 kernels.
      compiler_options: those of `jax.jit`.

    Returns:
      A function of the other arguments, which is compiled for each of their shapes.

    >>> double = freeze(lambda weights, images: images @ weights, 2 * jnp.eye(2))
    >>> double(jnp.array([[1.0, 3.0]])).tolist()
    [[2.0, 6.0]]
    """
    function = fuse_layers(function)
    programs: dict[Any, Callable[..., Any]] = {}

    def frozen(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        key = structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        if key not in programs:
            programs[key] = _compile(function, weights, arguments, compiler_options)
        return programs[key](leaves)

    return frozen


def _compile(
    function: Callable[..., Any], weights: Any, arguments: Any, compiler_options: Any
) -> Callable[[list[Any]], Any]:
    """The program for arguments of these shapes, as a function of their leaves."""
    leaves = jax.tree.leaves(weights)
    with jax.ensure_compile_time_eval():
        program, shape = jax.make_jaxpr(function, return_shape=True)(*weights, *arguments)
        packings = _packings(program.jaxpr, len(leaves)) if _are_on_one_cpu(leaves) else {}
        packed = jax.jit(lambda leaves: _pack(program, packings, leaves))(leaves)
    structure = jax.tree.structure(shape)
    equations, used = _live(program.jaxpr, packings)
    used_leaves = {
        number: leaf for number, leaf in enumerate(leaves) if program.jaxpr.invars[number] in used
    }

    def infer(packed: dict[int, Any], used_leaves: dict[int, Any], others: Sequence[Any]) -> Any:
        variables = program.jaxpr.invars
        values = {variables[number]: leaf for number, leaf in used_leaves.items()}
        values.update(zip(variables[len(leaves) :], others, strict=True))
        results = _evaluate(program, packings, equations, packed, values)
        return jax.tree.unflatten(structure, results)

    compiled = jax.jit(infer, compiler_options=compiler_options)
    return lambda others: compiled(packed, used_leaves, others)


def _are_on_one_cpu(leaves: Sequence[Any]) -> bool:
    """Whether the weights are on one CPU, so that the program will be."""
    devices = {
        device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()
    }
    devices = devices or {jax.devices()[0]}
    return len(devices) == 1 and devices.pop().platform == "cpu" and native.available()


def _fixed_equations(jaxpr: Jaxpr, count: int) -> dict[int, JaxprEqn]:
    """The equations, by number, that depend only on the first `count` inputs, the weights."""
    fixed = {*jaxpr.constvars, *jaxpr.invars[:count]}
    equations = {}
    for number, equation in enumerate(jaxpr.eqns):
        variables = variables_of(equation.invars)
        if variables and fixed.issuperset(variables) and not equation.effects:
            fixed.update(equation.outvars)
            equations[number] = equation
    return equations


def _packings(jaxpr: Jaxpr, count: int) -> dict[int, Packing]:
    """The packing of each equation that has one; the first `count` inputs are weights."""
    equations = _fixed_equations(jaxpr, count)
    fixed = {*jaxpr.constvars, *jaxpr.invars[:count]}
    fixed.update(variable for equation in equations.values() for variable in equation.outvars)
    packings = {
        number: packing_for(equation, fixed)
        for number, equation in enumerate(jaxpr.eqns)
        if number not in equations
    }
    return {number: packing for number, packing in packings.items() if packing}


def _live(jaxpr: Jaxpr, packings: dict[int, Packing]) -> tuple[set[int], set[Var]]:
    """The equations that are computed in each call, by number, and the variables that they use."""
    used = set(variables_of(jaxpr.outvars))
    equations = set()
    for number, equation in reversed(list(enumerate(jaxpr.eqns))):
        if used.isdisjoint(equation.outvars) and not equation.effects:
            continue
        equations.add(number)
        inputs = packings[number].inputs if number in packings else equation.invars
        used.update(variables_of(inputs))
    return equations, used


def _pack(
    program: ClosedJaxpr, packings: dict[int, Packing], leaves: Sequence[Any]
) -> dict[int, Any]:
    """What is computed once, by the number of the equation that uses it."""
    jaxpr = program.jaxpr
    weights = dict(zip(jaxpr.invars, leaves, strict=False))  # they come first
    fixed = _fixed_equations(jaxpr, len(leaves))

    def compute(number: int, equation: JaxprEqn, read: Read) -> Sequence[Any] | None:
        return compute_equation(jaxpr, equation, read) if number in fixed else None

    read = evaluate(program, weights, compute)
    return {number: packing.pack(read) for number, packing in packings.items()}


def _evaluate(
    program: ClosedJaxpr,
    packings: dict[int, Packing],
    equations: set[int],
    packed: dict[int, Any],
    values: dict[Var, Any],
) -> list[Any]:
    """The results of some equations of a program, from the values of the inputs that they use."""
    jaxpr = program.jaxpr

    def compute(number: int, equation: JaxprEqn, read: Read) -> Sequence[Any] | None:
        if number not in equations:
            return None
        if packing := packings.get(number):
            return [packing.apply(read, packed[number])]
        return compute_equation(jaxpr, equation, read)

    read = evaluate(program, values, compute)
    return [read(atom) for atom in jaxpr.outvars]
