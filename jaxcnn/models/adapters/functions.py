"""Networks that are pairs of pure functions, ``init`` and ``apply``, as NNX modules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.partitioning import for_known_devices

PyTree = Any


@dataclass(frozen=True)
class Call:
    """How a network is called.

    Attributes:
      key: a PRNG key in training, the same on all devices; None in evaluation.
      axis_name: the mapped axis over which `jax.pmap` divides the batch; None if it does not.
      batch_rows: ``i32[N]``, the positions of the images in the global batch; None for 0, 1, 2, …
    """

    key: Array | None
    axis_name: str | None
    batch_rows: Array | None = None

    @property
    def train(self) -> bool:
        """Whether the call is in training mode."""
        return self.key is not None


def from_functions(
    init: Callable[[Array], Any],
    apply: Callable[..., Any],
    rngs: nnx.Rngs,
    *,
    stateful: bool = False,
) -> nnx.Module:
    """Turns a pair of pure functions into an NNX module with initial weights.

    The parameters are attributes of the result below ``params``, the state below ``state``.

    Args:
      init: ``init(key)`` returns the parameters, a pytree of arrays; with `stateful` the pair of
        parameters and state.
      apply: ``apply(params, images)`` returns logits ``[N, classes]`` for images ``[N, H, W, C]``;
        with `stateful`, ``apply(params, state, images, key, train)`` returns logits and the next
        state. The key is another one at each step, the same for all microbatches of a step, and
        None in evaluation (`train` is False).
        Under `jax.pmap` each device has its own share of the images and its own key, and the mean
        of the devices' states is the next state.
      rngs: weights are drawn from the stream ``params``, keys from ``dropout``; either from the
        default stream if there is no such stream.
      stateful: whether the network has a state, such as running statistics, or draws random
        numbers.

    >>> def init(key):
    ...     return {"w": jax.random.normal(key, (64, 10))}
    >>> model = from_functions(init, lambda p, x: x.reshape(len(x), -1) @ p["w"], nnx.Rngs(0))
    >>> model(jnp.ones((4, 8, 8, 1))).shape
    (4, 10)
    """

    def apply_stateless(params: PyTree, state: PyTree, images: Array, call: Call) -> Any:
        return apply(params, images), state

    def apply_stateful(params: PyTree, state: PyTree, images: Array, call: Call) -> Any:
        key, axis = call.key, call.axis_name
        if key is not None and axis is not None:
            key = jax.random.fold_in(key, lax.axis_index(axis))
        outputs, state = apply(params, state, images, key, call.train)
        return outputs, _mean_over(axis, state) if axis else state

    variables = init(rngs.params())
    params, state = variables if stateful else (variables, {})
    return PureNetwork(params, state, apply_stateful if stateful else apply_stateless, rngs)


def _mean_over(axis_name: str, state: PyTree) -> PyTree:
    """The mean of floating-point numbers; others are equal on all devices."""
    return jax.tree.map(
        lambda x: lax.pmean(x, axis_name) if jnp.issubdtype(x.dtype, jnp.floating) else x, state
    )


class PureNetwork(nnx.Module):
    """A function and its parameters and state as variables.

    Attributes:
      params, state: nested dicts of variables, named as in the pytrees that they stand for.
      function: ``function(params, state, images, call)`` returns outputs and the next state, in
        training mode and in evaluation mode, see `Call`.
      deterministic: True in evaluation; set by `nnx.Module.eval`.
      axis_name: the mapped axis over which the batch is divided; set by the train step.
      batch_rows: the positions of the images in the global batch; set by the train step.
    """

    def __init__(self, params: PyTree, state: PyTree, function: Callable, rngs: nnx.Rngs):
        self.params, self.state = _nest(params, nnx.Param), _nest(state, nnx.BatchStat)
        self._params_layout, self._state_layout = _layout(params), _layout(state)
        self.function = function
        self.deterministic = False
        self.axis_name: str | None = None
        self.batch_rows: Array | None = None
        self.rngs = rngs["dropout"].fork()

    def __call__(self, images: Array) -> Any:
        key = None if self.deterministic else self.rngs()
        params, state = self._params_layout.tree(self.params), self._state_layout.tree(self.state)
        with fast_on_cpu():
            outputs, new_state = self.function(
                params,
                state,
                for_known_devices(images),
                Call(key, self.axis_name, self.batch_rows),
            )
        if not self.deterministic:
            self._state_layout.assign(self.state, new_state)
        return outputs


@dataclass(frozen=True)
class _Layout:
    """A pytree without its leaves: its structure, and the path of each leaf in a nested dict."""

    structure: Any
    paths: tuple[tuple[str, ...], ...]

    def tree(self, variables: Any) -> PyTree:
        """The pytree of the values of nested variables."""
        leaves = [_get(variables, path)[...] for path in self.paths]
        return jax.tree.unflatten(self.structure, leaves)

    def assign(self, variables: Any, tree: PyTree) -> None:
        """Assigns the leaves of a pytree to nested variables, which keep their dtypes.

        Raises:
          ValueError: the pytree has another structure.
        """
        leaves, structure = jax.tree.flatten(tree)
        if structure != self.structure:
            raise ValueError(
                f"the next state has another structure: {structure} instead of {self.structure}"
            )
        for path, leaf in zip(self.paths, leaves, strict=True):
            variable = _get(variables, path)
            variable.set_value(leaf.astype(variable.dtype))


def _layout(tree: PyTree) -> _Layout:
    paths = tuple(_names(path) for path, _ in jax.tree.leaves_with_path(tree))
    return _Layout(jax.tree.structure(tree), paths)


def _nest(tree: PyTree, variable: type[nnx.Variable]) -> Any:
    """The leaves of a pytree as variables in a nested dict, an attribute of a module."""
    nested: dict[str, Any] = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        *parents, name = _names(path)
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[name] = variable(leaf)
    return nnx.data(nested) if nested else None


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of the keys on the path to a leaf; a pytree that is a single array has one name."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path) or ("array",)


def _get(nested: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        nested = nested[name]
    return nested
