"""A sequential network in stages of about equal work: which layers each device computes."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from flax import nnx
from jax import Array
from jax.extend.core import Jaxpr

from jaxcnn.errors import InputError
from jaxcnn.ops.programs import inner_jaxprs

Layer = Callable[[Array], Array]
Path = tuple[Any, ...]
Range = tuple[int, int]  # the first layer, and the one after the last

_PRODUCTS = ("conv_general_dilated", "dot_general")


def sequence(model: nnx.Module) -> list[Layer]:
    """The layers of a sequential network in the order of their calls.

    Args:
      model: an `nnx.Sequential`, or a module with a method ``sequence`` that returns its layers:
        modules, and functions without parameters. An `nnx.Sequential` among them stands for its
        layers.

    Raises:
      InputError: the network is not sequential.

    >>> rngs = nnx.Rngs(0)
    >>> body = nnx.Sequential(nnx.Linear(4, 4, rngs=rngs), nnx.relu)
    >>> [type(layer).__name__ for layer in sequence(nnx.Sequential(body, nnx.relu))]
    ['Linear', 'custom_jvp', 'custom_jvp']
    """
    if isinstance(model, nnx.Sequential):
        layers = model.layers
    elif hasattr(model, "sequence"):
        layers = model.sequence()
    else:
        raise InputError(
            f"network {type(model).__name__} is not sequential, and strategy 'pipeline' needs "
            "stages: choose a sequential network such as resnet50 or vgg16, or give your own a "
            "method sequence() that returns its layers in the order of their calls; or choose "
            "another strategy"
        )
    return [inner for layer in layers for inner in _layers(layer)]


def run_layers(model: nnx.Module, x: Array, layers: Range) -> Array:
    """Calls a range of the layers of a sequential network, one after the other."""
    for layer in sequence(model)[slice(*layers)]:
        x = layer(x)
    return x


def blocks(model: nnx.Module) -> list[Range]:
    """Ranges of layers that stay together: one with parameters, and those without that follow it.

    Raises:
      InputError: as `sequence`.

    >>> rngs = nnx.Rngs(0)
    >>> blocks(nnx.Sequential(nnx.relu, nnx.Linear(4, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 4,
    ...     rngs=rngs)))
    [(0, 3), (3, 4)]
    """
    layers = sequence(model)
    starts = [index for index, layer in enumerate(layers) if _parameters(layer)]
    edges = [0, *starts[1:], len(layers)]
    return list(itertools.pairwise(edges))


def owners(model: nnx.Module, stages: Sequence[Range]) -> dict[Path, int]:
    """The stage of each variable of a sequential network, by its path in the network.

    Variables of no layer that are not parameters, such as a stream of random numbers, belong to
    the first stage.

    Raises:
      InputError: a parameter of no layer, or a variable of several stages.
    """
    layers = sequence(model)
    stage_of: dict[int, int] = {}
    for stage, (start, stop) in enumerate(stages):
        for layer in layers[start:stop]:
            for variable in _variables(layer):
                if stage_of.setdefault(id(variable), stage) != stage:
                    raise InputError(
                        f"network {type(model).__name__}: layer {type(layer).__name__} of stage "
                        f"{stage + 1} shares an array with an earlier stage, which strategy "
                        "'pipeline' cannot divide: choose another strategy"
                    )
    result = {}
    for path, node in nnx.iter_graph(model):
        if isinstance(node, nnx.Variable):
            if isinstance(node, nnx.Param) and id(node) not in stage_of:
                raise InputError(
                    f"network {type(model).__name__}: its parameter "
                    f"{'.'.join(map(str, path))} belongs to no layer of sequence()"
                )
            result[path] = stage_of.get(id(node), 0)
    return result


def balance(costs: Sequence[int], count: int) -> list[Range]:
    """Divides a row of blocks into `count` parts, so that the most expensive part is cheapest.

    Of several such divisions, one with equal parts is preferred.

    Args:
      costs: of each block.
      count: the number of parts, at most that of the blocks.

    References:
      Huang et al. 2019, *GPipe*, §2.2, which divides layers by estimated costs.

    >>> balance([1, 1, 1, 3, 2, 2], 3)
    [(0, 3), (3, 4), (4, 6)]
    """

    @functools.cache
    def best(start: int, parts: int) -> tuple[int, int, tuple[int, ...]]:
        """The most expensive part of the blocks from `start`, the sum of squares, and the ends."""
        if parts == 1:
            cost = sum(costs[start:])
            return cost, cost**2, (len(costs),)
        choices = []
        for end in range(start + 1, len(costs) - parts + 2):
            cost = sum(costs[start:end])
            largest, squares, ends = best(end, parts - 1)
            choices.append((max(cost, largest), cost**2 + squares, (end, *ends)))
        return min(choices)

    *_, ends = best(0, count)
    return list(zip((0, *ends), ends, strict=False))


def flops(jaxpr: Jaxpr) -> int:
    """Floating-point operations, two for a multiply-add, and one for each element of other results.

    >>> import jax, jax.numpy as jnp
    >>> a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
    >>> flops(jax.make_jaxpr(lambda a, b: jnp.tanh(a @ b))(a, b).jaxpr)
    56
    """
    return sum(map(equation_flops, jaxpr.eqns))


def equation_flops(equation: Any) -> int:
    """`flops` of one equation."""
    size = sum(math.prod(result.aval.shape) for result in equation.outvars)
    if equation.primitive.name in _PRODUCTS:
        return 2 * size * _products_per_element(equation)
    inner = list(inner_jaxprs(equation))
    return sum(map(flops, inner)) if inner else size


def _products_per_element(equation: Any) -> int:
    """The number of products that are summed for an element of a convolution or matrix product."""
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    numbers = equation.params["dimension_numbers"]
    if equation.primitive.name == "dot_general":
        return math.prod(left[axis] for axis in numbers[0][0])
    return math.prod(right) // right[numbers.rhs_spec[0]]


def _layers(layer: Layer) -> list[Layer]:
    return sequence(layer) if isinstance(layer, nnx.Sequential) else [layer]


def _variables(layer: Layer) -> list[nnx.Variable]:
    if not isinstance(layer, nnx.Module):
        return []
    return [node for _, node in nnx.iter_graph(layer) if isinstance(node, nnx.Variable)]


def _parameters(layer: Layer) -> list[nnx.Variable]:
    return [variable for variable in _variables(layer) if isinstance(variable, nnx.Param)]
