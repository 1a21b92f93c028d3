"""Finds the layers of a program, and the equations after each that become part of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from jaxcnn.ops import dense
from jaxcnn.ops.activations import activation_at
from jaxcnn.ops.cpu_lowering import primitive_of
from jaxcnn.ops.fused_layers import PER_CHANNEL, layer_of
from jaxcnn.ops.native import NO_ACTIVATION, Activation, Kind
from jaxcnn.ops.programs import Atom, Uses, type_of

# What needs its operand in memory. XLA fuses most others with what comes before: then there is a
# pass over memory anyway, and nothing to gain.
_STORING = (
    "conv_general_dilated",
    "dot_general",
    "for_known_devices",
    "materialize",
    primitive_of(dense.matrix_product).name,
)
# The kernels compute other activations several times faster than XLA's fusions do.
_SIMPLE = (Kind.CLIP, Kind.LEAKY_RELU)


@dataclass(frozen=True)
class Fusion:
    """A convolution or a product, and the equations after it that become part of it.

    Attributes:
      layer: computes all of it, from the operands, those of the steps, and the summand.
      shape: of the result of the convolution or product; what follows may reshape it.
      operands: its images or inputs, and its kernel.
      equations: the numbers of all equations; the result is that of the last.
      steps: what follows, in order: keys of `PER_CHANNEL`.
      channels: the other operand of each step, a number for each channel.
      summand: an array that is added after them; None if there is none.
      activation: after that.
    """

    layer: Callable[..., Array]
    shape: tuple[int, ...]
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


def find_fusions(jaxpr: Jaxpr) -> list[Fusion]:
    """The fusions of all layers that are followed by something to fuse."""
    uses, makers = Uses(jaxpr), {}
    for equation in jaxpr.eqns:
        makers.update(dict.fromkeys(equation.outvars, equation))
    fusions: list[Fusion] = []
    fused: set[int] = set()  # equations; the sum of two layers becomes part of the first

    def is_stored_anyway(variable: Var) -> bool:
        user = uses.only(variable)
        if user is None or user in fused:
            return True
        if jaxpr.eqns[user].primitive.name == "reshape":
            return is_stored_anyway(jaxpr.eqns[user].outvars[0])
        return jaxpr.eqns[user].primitive.name in _STORING

    for number, equation in enumerate(jaxpr.eqns):
        layer = layer_of(equation)
        fusion = layer and _longest_fusion(jaxpr, number, layer, uses, makers, fused)
        if fusion is None:
            continue
        result = jaxpr.eqns[fusion.equations[-1]].outvars[0]
        if fusion.activation.kind not in _SIMPLE or is_stored_anyway(result):
            fusions.append(fusion)
            fused.update(fusion.equations)
    return fusions


def _longest_fusion(
    jaxpr: Jaxpr,
    number: int,
    layer: Callable[..., Array],
    uses: Uses,
    makers: dict[Var, JaxprEqn],
    fused: set[int],
) -> Fusion | None:
    """The longest fusion that begins with the layer at equation `number`; None if nothing fuses.

    It ends before equations that are in `fused`.
    """
    inputs, kernel = jaxpr.eqns[number].invars
    value = jaxpr.eqns[number].outvars[0]
    shape, dtype = type_of(value).shape, type_of(value).dtype
    fusion, largest = Fusion(layer, shape, (inputs, kernel), (number,)), None
    while not fusion.is_complete:
        numbers, longer = _absorb_next(fusion, jaxpr, value, dtype, uses, makers)
        if longer is None or not fused.isdisjoint(numbers):
            break
        fusion = replace(longer, equations=(*fusion.equations, *numbers))
        value = jaxpr.eqns[numbers[-1]].outvars[0]
        if type_of(value).dtype == dtype and fusion.has_operations:
            largest = fusion
    return largest


def _absorb_next(
    fusion: Fusion,
    jaxpr: Jaxpr,
    value: Var,
    dtype: np.dtype,
    uses: Uses,
    makers: dict[Var, JaxprEqn],
) -> tuple[Sequence[int], Fusion | None]:
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
    return [user], _absorb(fusion, jaxpr.eqns[user], value, dtype, makers)


def _absorb(
    fusion: Fusion,
    equation: JaxprEqn,
    value: Var,
    dtype: np.dtype,
    makers: dict[Var, JaxprEqn],
) -> Fusion | None:
    """A fusion and what the next equation does; None if that cannot be part of it.

    Args:
      fusion: up to this equation.
      equation: uses `value`.
      value: what the fusion computes so far.
      dtype: of the result of its layer.
      makers: the equation of each variable.
    """
    name, shape = equation.primitive.name, type_of(value).shape
    if name == "materialize" and equation.params["when"] == "backward":
        return fusion
    if name == "convert_element_type":
        is_floating = jnp.issubdtype(type_of(equation.outvars[0]).dtype, jnp.floating)
        return fusion if is_floating else None
    if name in PER_CHANNEL and not (name == "sub" and equation.invars[0] is not value):
        other = equation.invars[1 if equation.invars[0] is value else 0]
        return _absorb_operand(fusion, name, other, shape, dtype, makers)
    if name == "reshape":
        return fusion if type_of(equation.outvars[0]).shape[-1:] == shape[-1:] else None
    return None


def _absorb_operand(
    fusion: Fusion,
    name: str,
    other: Atom,
    shape: tuple[int, ...],
    dtype: np.dtype,
    makers: dict[Var, JaxprEqn],
) -> Fusion | None:
    """A fusion and a step with another operand: a number for each channel, or a summand."""
    if fusion.summand is not None:
        return None
    channel = _per_channel(other, shape[-1], makers)
    if channel is not None:
        return replace(fusion, steps=(*fusion.steps, name), channels=(*fusion.channels, channel))
    is_sum = name == "add" and _is_summand(other, shape, dtype)
    return replace(fusion, summand=other) if is_sum else None


def _is_summand(atom: Atom, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether kernels can add this to a layer's result of this shape and type."""
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
