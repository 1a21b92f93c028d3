"""Named arrays into a network, and what of it they leave as drawn."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcnn.errors import InputError

Weights = dict[str, np.ndarray]
Shape = tuple[int, ...]

HEADS = (
    "out",
    "head1",
    "head2",
)  # what depends on the number of classes: the last layer, GoogLeNet's auxiliary heads

_ASSIGNABLE = nnx.Not(nnx.RngState)
_SHOWN = 3


def names(model: nnx.Module) -> dict[str, Shape]:
    """What can be assigned: parameters, running statistics and fixed numbers, not random keys; the model may be abstract.

    >>> names(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    {'bias': (3,), 'kernel': (2, 3)}
    """
    return {
        _dotted(path): variable.shape
        for path, variable in nnx.to_flat_state(nnx.state(model, _ASSIGNABLE))
    }


def assign(model: nnx.Module, weights: Weights, *, new_head: bool = False) -> list[str]:
    """Puts arrays into a network, in place; each takes the dtype of what it replaces.

    Args:
      model: a network with numbers.
      weights: by dotted path, as `names` gives them.
      new_head: a layer of `HEADS` keeps its drawn values where the weights have none for it, or other shapes, and weights
        for heads that the network lacks are not used: the network is for other classes.

    Returns:
      The names left as drawn.

    Raises:
      InputError: names are missing, or unknown, or shapes differ; then nothing was assigned.
    """
    shapes = names(model)
    kept = _kept(shapes, weights) if new_head else []
    required = {name: shape for name, shape in shapes.items() if name not in kept}
    surplus = [name for name in weights if name not in shapes and not (new_head and _in_head(name))]
    _require_fit(required, weights, surplus)
    drawn = nnx.to_flat_state(nnx.state(model, _ASSIGNABLE))
    named = [(path, variable, _dotted(path)) for path, variable in drawn]
    new = [
        (path, jnp.asarray(weights[name], variable.dtype))
        for path, variable, name in named
        if name in required
    ]
    nnx.update(model, nnx.from_flat_state(new))
    return kept


def _kept(shapes: dict[str, Shape], weights: Weights) -> list[str]:
    """All names of the head's layers that do not fit: a kernel as drawn with somebody's bias would be neither."""
    unfit = {
        _layer(name)
        for name, shape in shapes.items()
        if _in_head(name) and not _fits(shape, weights.get(name))
    }
    return [name for name in shapes if _layer(name) in unfit]


def _require_fit(required: dict[str, Shape], weights: Weights, surplus: list[str]) -> None:
    missing = [name for name in required if name not in weights]
    differing = [
        f"{name} is {_by(np.shape(weights[name]))} there, {_by(shape)} here"
        for name, shape in required.items()
        if name in weights and not _fits(shape, weights[name])
    ]
    problems = [
        f"{len(found)} {what}: {', '.join(found[:_SHOWN])}{', …' if len(found) > _SHOWN else ''}"
        for found, what in (
            (missing, "missing"),
            (surplus, "unknown"),
            (differing, "of another shape"),
        )
        if found
    ]
    if problems:
        raise InputError(
            f"the weights do not fit the network: {'; '.join(problems)}. They must be of the same --model, for "
            "images of the same size; with --init-from the last layer alone may be for other classes, and is then drawn anew"
        )


def _fits(shape: Shape, array: np.ndarray | None) -> bool:
    return array is not None and np.shape(array) == shape


def _in_head(name: str) -> bool:
    return name.split(".")[0] in HEADS


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _dotted(path: tuple) -> str:
    return ".".join(str(part) for part in path)


def _by(shape: Shape) -> str:
    return "×".join(str(side) for side in shape) or "a single number"
