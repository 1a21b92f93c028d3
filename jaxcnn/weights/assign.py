"""Assigns named arrays to the variables of a network."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcnn.errors import InputError

Weights = dict[str, np.ndarray]
Shape = tuple[int, ...]

# The layers that depend on the number of classes: the last one and GoogLeNet's auxiliary heads.
HEADS = ("out", "head1", "head2")

_ASSIGNABLE = nnx.Not(nnx.RngState)
_LISTED = 3  # names that an error message lists of each kind


def array_shapes(model: nnx.Module) -> dict[str, Shape]:
    """The names and shapes of the arrays that can be assigned; the model may be abstract.

    These are parameters, running statistics and fixed arrays, not random keys.

    >>> array_shapes(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    {'bias': (3,), 'kernel': (2, 3)}
    """
    return {
        _dotted(path): variable.shape
        for path, variable in nnx.to_flat_state(nnx.state(model, _ASSIGNABLE))
    }


def array_values(model: nnx.Module) -> Weights:
    """The arrays of a network by dotted name: what `assign` puts into it.

    >>> array_values(nnx.BatchNorm(1, rngs=nnx.Rngs(0)))["var"].tolist()
    [1.0]
    """
    return {
        _dotted(path): np.asarray(variable[...])
        for path, variable in nnx.to_flat_state(nnx.state(model, _ASSIGNABLE))
    }


def assign(model: nnx.Module, weights: Weights, *, new_head: bool = False) -> list[str]:
    """Assigns arrays to a network, in place; each is cast to the dtype of the array it replaces.

    Args:
      model: an initialized network.
      weights: arrays by dotted name, see `array_shapes`.
      new_head: allow weights for another number of classes: a layer of `HEADS` keeps its initial
        values if the weights lack it or have another shape, and weights for heads that the network
        lacks are ignored.

    Returns:
      The names that keep their initial values.

    Raises:
      InputError: missing names, unknown names or other shapes; in that case nothing is assigned.

    >>> model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    >>> assign(model, {"kernel": np.full((1, 1), 2.0), "bias": np.ones(1)})
    []
    >>> model(jnp.array([3.0])).tolist()
    [7.0]
    """
    expected = array_shapes(model)
    kept = _unfit_head_names(expected, weights) if new_head else []
    required = {name: shape for name, shape in expected.items() if name not in kept}
    unknown = [
        name for name in weights if name not in expected and not (new_head and _in_head(name))
    ]
    _require_fit(required, weights, unknown)
    updates = [
        (path, jnp.asarray(weights[_dotted(path)], variable.dtype))
        for path, variable in nnx.to_flat_state(nnx.state(model, _ASSIGNABLE))
        if _dotted(path) in required
    ]
    nnx.update(model, nnx.from_flat_state(updates))
    return kept


def _unfit_head_names(expected: dict[str, Shape], weights: Weights) -> list[str]:
    """All names of the head's layers for which an array is missing or of another shape.

    A layer is kept as a whole: an initial kernel with a bias from the file would make no sense.
    """
    unfit_layers = {
        _layer(name)
        for name, shape in expected.items()
        if _in_head(name) and not _fits(shape, weights.get(name))
    }
    return [name for name in expected if _layer(name) in unfit_layers]


def _require_fit(required: dict[str, Shape], weights: Weights, unknown: list[str]) -> None:
    missing = [name for name in required if name not in weights]
    other_shape = [
        f"{name} is {_format_shape(np.shape(weights[name]))} instead of {_format_shape(shape)}"
        for name, shape in required.items()
        if name in weights and not _fits(shape, weights[name])
    ]
    problems = [
        _summarize(names, problem)
        for names, problem in (
            (missing, "missing"),
            (unknown, "unknown"),
            (other_shape, "of another shape"),
        )
        if names
    ]
    if problems:
        raise InputError(
            f"the weights do not fit the network: {'; '.join(problems)}. They must be of the same "
            "--model, for images of the same size; only with --init-from may the last layer, if it "
            "is called 'out', be for other classes, and it then starts from random values"
        )


def _summarize(names: list[str], problem: str) -> str:
    """The number of names and the first of them, such as ``2 missing: out.bias, out.kernel``."""
    more = ", …" if len(names) > _LISTED else ""
    return f"{len(names)} {problem}: {', '.join(names[:_LISTED])}{more}"


def _fits(shape: Shape, array: np.ndarray | None) -> bool:
    return array is not None and np.shape(array) == shape


def _in_head(name: str) -> bool:
    return name.split(".")[0] in HEADS


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _dotted(path: tuple) -> str:
    return ".".join(str(part) for part in path)


def _format_shape(shape: Shape) -> str:
    return "×".join(str(side) for side in shape) or "a scalar"
