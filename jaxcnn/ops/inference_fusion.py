"""A convolution, what follows it, and an activation as one pass over memory, on a CPU.

`fuse_convolutions` rewrites the program of an inference. Biases and batch norm in evaluation, which
multiply and add one number for each channel, become one factor and one addend. They, the other
branch of a residual block and the activation are applied to the sums before they are stored. The
programs of other platforms compute what the function does, operation by operation.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from jaxcnn.ops import conv_lowering, cpu_convolution, native
from jaxcnn.ops.activations import activation_at
from jaxcnn.ops.conv_spec import ConvSpec
from jaxcnn.ops.cpu_lowering import MARK
from jaxcnn.ops.fused_convolution import PER_CHANNEL, fused_convolution
from jaxcnn.ops.native import NO_ACTIVATION, Activation
from jaxcnn.ops.programs import Atom, Read, Uses, compute_equation, evaluate, type_of

# What needs its operand in memory. XLA fuses most others with what comes before: then there is a
# pass over memory anyway, and nothing to gain.
_STORING = ("conv_general_dilated", "for_known_devices", "materialize")
MIN_OUTPUTS = 16  # fewer leave most of a vector register empty

Function = Callable[..., Any]


def fuse_convolutions(function: Function) -> Function:
    """The same function, whose convolutions, biases, batch norms and activations are fused.

    That applies to convolutions within `fast_on_cpu`, which those of an accelerated model are: of
    images ``[N, H, W, C]``, without groups or with one for each channel. The activations are ReLU,
    ReLU6, leaky ReLU, sigmoid, SiLU, both forms of GELU and hard-swish, those of `jax.nn`.

    Args:
      function: of arrays, in any containers. Its derivatives need not be fast.

    Returns:
      A function with the same arguments and results, equal up to rounding.

    >>> from jaxcnn.ops.cpu_lowering import fast_on_cpu
    >>> def layer(images, kernel, bias):
    ...     with fast_on_cpu():
    ...         layout = ("NHWC", "HWIO", "NHWC")
    ...         y = jax.lax.conv_general_dilated(
    ...             images, kernel, (1, 1), "SAME", dimension_numbers=layout
    ...         )
    ...     return jax.nn.relu(y + bias)
    >>> arguments = jnp.ones((1, 4, 4, 2)), jnp.ones((1, 1, 2, 3)), jnp.array([-3.0, 0.0, 1.0])
    >>> jax.jit(fuse_convolutions(layer))(*arguments)[0, 0, 0].tolist()
    [0.0, 2.0, 3.0]
    """

    @functools.wraps(function)
    def fused(*arguments: Any) -> Any:
        if not native.available():
            return function(*arguments)
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _evaluate(program, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return fused


@dataclass(frozen=True)
class _Fusion:
    """A convolution and the equations after it that become part of it.

    Attributes:
      spec: of the convolution.
      operands: its images and its kernel.
      equations: the numbers of all equations; the result is that of the last.
      steps: what follows, in order: keys of `PER_CHANNEL`.
      channels: the other operand of each step, a number for each channel.
      summand: an array that is added after them; None if there is none.
      activation: after that.
    """

    spec: ConvSpec
    operands: tuple[Atom, Atom]
    equations: tuple[int, ...]
    steps: tuple[str, ...] = ()
    channels: tuple[Atom, ...] = ()
    summand: Atom | None = None
    activation: Activation = NO_ACTIVATION

    @property
    def is_complete(self) -> bool:
        return self.activation != NO_ACTIVATION

    @property
    def has_operations(self) -> bool:
        return bool(self.steps) or self.summand is not None or self.is_complete


def _evaluate(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """The results of a program, whose convolutions are fused."""
    jaxpr = program.jaxpr
    fusions = {fusion.equations[-1]: fusion for fusion in _fusions(jaxpr)}
    absorbed = {number for each in fusions.values() for number in each.equations[:-1]}

    def compute(number: int, equation: JaxprEqn, read: Read) -> Sequence[Any] | None:
        if number in absorbed:
            return None
        if fusion := fusions.get(number):
            return [_compute(fusion, read)]
        return compute_equation(jaxpr, equation, read)

    read = evaluate(program, dict(zip(jaxpr.invars, arguments, strict=True)), compute)
    return [read(atom) for atom in jaxpr.outvars]


def _fusions(jaxpr: Jaxpr) -> list[_Fusion]:
    """Those of all convolutions after which there is something to fuse."""
    uses, makers = Uses(jaxpr), {}
    for equation in jaxpr.eqns:
        makers.update(dict.fromkeys(equation.outvars, equation))
    fusions: list[_Fusion] = []
    fused: set[int] = set()  # equations; the sum of two convolutions becomes part of the first

    def is_stored_anyway(variable: Var) -> bool:
        user = uses.only(variable)
        return user is None or user in fused or jaxpr.eqns[user].primitive.name in _STORING

    for number, equation in enumerate(jaxpr.eqns):
        spec = _forward_spec(equation)
        fusion = spec and _follow(jaxpr, number, spec, uses, makers, fused)
        if fusion and is_stored_anyway(jaxpr.eqns[fusion.equations[-1]].outvars[0]):
            fusions.append(fusion)
            fused.update(fusion.equations)
    return fusions


def _forward_spec(equation: JaxprEqn) -> ConvSpec | None:
    """The specification of a convolution that can be fused; None for all other equations."""
    if equation.primitive is not jax.lax.conv_general_dilated_p:
        return None
    if MARK not in (equation.ctx.xla_metadata or {}):
        return None
    images, kernel, result = map(type_of, (*equation.invars, *equation.outvars))
    spec = conv_lowering.forward_spec(images, kernel, result, equation.params)
    if spec is None or kernel.shape[-1] < MIN_OUTPUTS:
        return None
    can_fuse = cpu_convolution.can_activate(spec, images, kernel)
    return spec if can_fuse and native.can_compute(images, kernel) else None


def _follow(
    jaxpr: Jaxpr,
    number: int,
    spec: ConvSpec,
    uses: Uses,
    makers: dict[Var, JaxprEqn],
    fused: set[int],
) -> _Fusion | None:
    """What follows the convolution that is this equation, up to those that are fused already."""
    images, kernel = jaxpr.eqns[number].invars
    value = jaxpr.eqns[number].outvars[0]
    result = type_of(value)
    fusion, largest = _Fusion(spec, (images, kernel), (number,)), None
    while not fusion.is_complete:
        numbers, longer = _absorb_next(fusion, jaxpr, value, result, uses, makers)
        if longer is None or not fused.isdisjoint(numbers):
            break
        fusion = replace(longer, equations=(*fusion.equations, *numbers))
        value = jaxpr.eqns[numbers[-1]].outvars[0]
        if type_of(value).dtype == result.dtype and fusion.has_operations:
            largest = fusion
    return largest


def _absorb_next(
    fusion: _Fusion,
    jaxpr: Jaxpr,
    value: Var,
    result: jax.ShapeDtypeStruct,
    uses: Uses,
    makers: dict[Var, JaxprEqn],
) -> tuple[Sequence[int], _Fusion | None]:
    """The numbers of the equations that use `value`, and the fusion with them; see `_absorb`."""
    if not uses[value]:
        return [], None
    activation, numbers = activation_at(jaxpr, uses[value][0], value)
    inner = [variable for number in numbers[:-1] for variable in jaxpr.eqns[number].outvars]
    if activation != NO_ACTIVATION and uses.are_within([value, *inner], numbers):
        return numbers, replace(fusion, activation=activation)
    user = uses.only(value)
    if user is None:
        return [], None
    return [user], _absorb(fusion, jaxpr.eqns[user], value, result, makers)


def _absorb(
    fusion: _Fusion,
    equation: JaxprEqn,
    value: Var,
    result: jax.ShapeDtypeStruct,
    makers: dict[Var, JaxprEqn],
) -> _Fusion | None:
    """A fusion and what the next equation does; None if that cannot be part of it.

    Args:
      fusion: up to this equation.
      equation: uses `value`.
      value: what the fusion computes so far.
      result: of its convolution.
      makers: the equation of each variable.
    """
    name = equation.primitive.name
    if name == "materialize" and equation.params["when"] == "backward":
        return fusion
    if name == "convert_element_type":
        is_floating = jnp.issubdtype(type_of(equation.outvars[0]).dtype, jnp.floating)
        return fusion if is_floating else None
    if name in PER_CHANNEL and not (name == "sub" and equation.invars[0] is not value):
        other = equation.invars[1 if equation.invars[0] is value else 0]
        return _absorb_operand(fusion, name, other, result, makers)
    return None


def _absorb_operand(
    fusion: _Fusion,
    name: str,
    other: Atom,
    result: jax.ShapeDtypeStruct,
    makers: dict[Var, JaxprEqn],
) -> _Fusion | None:
    """A fusion and a step with another operand: a number for each channel, or a summand."""
    if fusion.summand is not None:
        return None
    channel = _per_channel(other, result.shape[-1], makers)
    if channel is not None:
        return replace(fusion, steps=(*fusion.steps, name), channels=(*fusion.channels, channel))
    is_sum = name == "add" and _is_summand(other, result.shape, result.dtype)
    return replace(fusion, summand=other) if is_sum else None


def _is_summand(atom: Atom, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether kernels can add this to a convolution's result of this shape and type."""
    are_floats = type_of(atom).dtype == dtype == jnp.float32
    return are_floats and type_of(atom).shape == shape and not isinstance(atom, Literal)


def _per_channel(atom: Atom, outputs: int, makers: dict[Var, JaxprEqn]) -> Atom | None:
    """The variable with a number for each output that this one is, or is a broadcast of."""

    def has_a_number_for_each(atom: Atom) -> bool:
        shape = type_of(atom).shape
        return shape[-1:] == (outputs,) and set(shape[:-1]) <= {1}

    if has_a_number_for_each(atom):
        return atom
    maker = None if isinstance(atom, Literal) else makers.get(atom)
    if maker is None or maker.primitive.name != "broadcast_in_dim":
        return None
    *_, place = maker.params["broadcast_dimensions"] or (None,)
    is_last = place == len(maker.params["shape"]) - 1
    return maker.invars[0] if is_last and has_a_number_for_each(maker.invars[0]) else None


def _compute(fusion: _Fusion, read: Read) -> Array:
    images, kernel = map(read, fusion.operands)
    channels = [read(each).reshape(-1) for each in fusion.channels]
    summands = [] if fusion.summand is None else [read(fusion.summand)]
    return fused_convolution(
        images,
        kernel,
        *channels,
        *summands,
        spec=fusion.spec,
        steps=fusion.steps,
        activation=fusion.activation,
    )
