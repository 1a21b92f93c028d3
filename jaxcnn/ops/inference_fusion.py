"""A convolution, what follows it, and an activation as one pass over memory, on a CPU.

`fuse_convolutions` rewrites the program of an inference. Biases and batch norm in evaluation, which
multiply and add one number for each channel, become one factor and one addend. They, the other
branch of a residual block and the activation are applied to the sums before they are stored. The
programs of other platforms compute what the function does, operation by operation.
"""

import collections
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from jaxcnn.ops import conv_lowering, cpu_convolution, native
from jaxcnn.ops.conv_spec import ConvSpec
from jaxcnn.ops.cpu_lowering import MARK, fast_on_cpu, with_cpu_kernel
from jaxcnn.ops.native import NO_ACTIVATION, Activation, Kind
from jaxcnn.ops.programs import Atom, Read, compute_equation, evaluate, type_of, variables_of

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
_PER_CHANNEL = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply}
# What needs its operand in memory. XLA fuses most others with what comes before: then there is a
# pass over memory anyway, and nothing to gain.
_STORING = ("conv_general_dilated", "for_known_devices", "materialize")
MIN_OUTPUTS = 16  # fewer leave most of a vector register empty

T = TypeVar("T")
Function = Callable[..., Any]


def fuse_convolutions(function: Function) -> Function:
    """The same function, whose convolutions, biases, batch norms and activations are fused.

    That applies to convolutions within `fast_on_cpu`, which those of an accelerated model are: of
    images ``[N, H, W, C]``, without groups or with one for each channel. The activations are ReLU,
    ReLU6, leaky ReLU, sigmoid, SiLU, GELU with tanh and hard-swish, those of `jax.nn`.

    Args:
      function: of arrays, in any containers. Its derivatives need not be fast.

    Returns:
      A function with the same arguments and results, equal up to rounding.

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
      steps: what follows, in order: keys of `_PER_CHANNEL`.
      channels: the other operand of each step, a number for each channel.
      summand: an array that is added after them; None if there is none.
      activation: after that.
      equations: the numbers of all equations; the result is that of the last.
    """

    spec: ConvSpec
    operands: tuple[Atom, Atom]
    steps: tuple[str, ...]
    channels: tuple[Atom, ...]
    summand: Atom | None
    activation: Activation
    equations: tuple[int, ...]


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
    uses = collections.Counter(
        atom
        for atoms in (*(equation.invars for equation in jaxpr.eqns), jaxpr.outvars)
        for atom in variables_of(atoms)
    )
    users, makers = {}, {}
    for number, equation in enumerate(jaxpr.eqns):
        users.update(dict.fromkeys(variables_of(equation.invars), number))
        makers.update(dict.fromkeys(equation.outvars, equation))
    results = set(map(id, jaxpr.outvars))
    fusions: list[_Fusion] = []
    fused: set[int] = set()  # equations; the sum of two convolutions becomes part of the first

    def only_user(variable: Var) -> int | None:
        is_internal = uses[variable] == 1 and id(variable) not in results
        return users[variable] if is_internal else None

    def is_stored_anyway(variable: Var) -> bool:
        user = only_user(variable)
        return user is None or user in fused or jaxpr.eqns[user].primitive.name in _STORING

    for number, equation in enumerate(jaxpr.eqns):
        spec = _forward_spec(equation)
        fusion = spec and _follow(jaxpr, number, spec, only_user, makers, fused)
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
    only_user: Callable[[Var], int | None],
    makers: dict[Var, JaxprEqn],
    fused: set[int],
) -> _Fusion | None:
    """What follows the convolution that is this equation, up to those that are fused already."""
    images, kernel = jaxpr.eqns[number].invars
    value = jaxpr.eqns[number].outvars[0]
    shape, dtype = type_of(value).shape, type_of(value).dtype
    steps, channels, equations = [], [], [number]
    fusion, summand, activation = None, None, NO_ACTIVATION
    while activation == NO_ACTIVATION and (user := only_user(value)) is not None:
        equation = jaxpr.eqns[user]
        name = equation.primitive.name
        if user in fused:
            break
        if name in _PER_CHANNEL and not (name == "sub" and equation.invars[0] is not value):
            other = equation.invars[1 if equation.invars[0] is value else 0]
            channel = _per_channel(other, shape[-1], makers)
            if summand is not None:
                break
            if channel is not None:
                steps.append(name)
                channels.append(channel)
            elif name == "add" and _is_summand(other, shape, dtype):
                summand = other
            else:
                break
        elif name == "materialize" and equation.params["when"] == "backward":
            pass
        elif name == "convert_element_type":
            if not jnp.issubdtype(type_of(equation.outvars[0]).dtype, jnp.floating):
                break
        elif (activation := _activation_of(equation, value)) == NO_ACTIVATION:
            break
        equations.append(user)
        value = equation.outvars[0]
        has_more = steps or summand is not None or activation != NO_ACTIVATION
        if type_of(value).dtype == dtype and has_more:
            fusion = _Fusion(
                spec=spec,
                operands=(images, kernel),
                steps=tuple(steps),
                channels=tuple(channels),
                summand=summand,
                activation=activation,
                equations=tuple(equations),
            )
    return fusion


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


def _activation_of(equation: JaxprEqn, value: Var) -> Activation:
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
        result = _PER_CHANNEL[step](result.astype(wide), channel.astype(wide))
    if summand is not None:
        result = result + summand
    return _apply(activation, result).astype(dtype)


def _apply(activation: Activation, values: Array) -> Array:
    if activation == NO_ACTIVATION:
        return values
    if activation.kind == Kind.LEAKY_RELU:
        return jax.nn.leaky_relu(values, activation.low)
    return next(f for f, known in _ACTIVATIONS.items() if known == activation)(values)


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
