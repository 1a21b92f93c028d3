"""Gradient accumulation: a batch in parts, one after the other, inside of one compiled step."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.errors import InputError
from jaxcnn.training.network import Path
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.state import PyTree

# ``(model_state, batch, rows) -> (grads, metrics, next model_state)``
Gradients = Callable[[PyTree, Batch, Array], tuple[PyTree, Metrics, PyTree]]


def accumulate(
    gradients: Gradients,
    model_state: PyTree,
    batch: Batch,
    rows: Array,
    *,
    count: int,
    together: int = 1,
    random_state: Sequence[Path] = (),
) -> tuple[PyTree, Metrics, PyTree]:
    """Sums gradients and metrics over the microbatches of a batch.

    What the network itself updates, such as running statistics, goes from one microbatch to the
    next; keys and counters of random numbers advance once, as in a step on the whole batch.

    Args:
      gradients: of the summed loss over a batch; see `Gradients`.
      model_state: see `TrainState`.
      batch: with leaves ``[N, …]``.
      rows: ``i32[N]``, the position of each row in the global batch.
      count: the number of microbatches.
      together: rows that must be in the same microbatch, as neighbors.
      random_state: see `Network`.

    Returns:
      The summed gradients and metrics, and the next `model_state`.

    Raises:
      InputError: the batch cannot be divided into this number of microbatches.
    """
    if count == 1:
        return gradients(model_state, batch, rows)
    parts = split((batch, rows), count, together)
    first = jax.tree.map(lambda leaf: leaf[0], parts)
    shapes = jax.eval_shape(gradients, model_state, *first)[:2]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(carry, part):
        sums, current = carry
        *terms, after = gradients(with_random_state(current, model_state, random_state), *part)
        return (jax.tree.map(jnp.add, sums, tuple(terms)), after), None

    ((grads, metrics), model_state), _ = lax.scan(body, (zeros, model_state), parts)
    return grads, metrics, model_state


def split(tree: PyTree, count: int, together: int = 1) -> PyTree:
    """Divides leaves ``[N, …]`` into ``[count, N / count, …]``, every `count`-th row in one part.

    Neighbors are in different parts, so that a device that holds a share of the rows has a share
    of each part, and every strategy has the same parts.

    Args:
      tree: with leaves ``[N, …]``.
      count: the number of parts.
      together: the length of the runs of rows that stay together.

    Raises:
      InputError: N is not a multiple of ``count · together``.

    >>> split(jnp.arange(8), 2).tolist()
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    >>> split(jnp.arange(8), 2, together=2).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """

    def split_leaf(leaf):
        size, *shape = leaf.shape
        if size % (count * together):
            raise InputError(
                f"{size} images on a device cannot be divided into {count} microbatches of a "
                f"multiple of {together}: choose another number of microbatches or batch size"
            )
        runs = leaf.reshape(size // (count * together), count, together, *shape)
        return jnp.moveaxis(runs, 1, 0).reshape(count, size // count, *shape)

    return jax.tree.map(split_leaf, tree)


def with_random_state(model_state: PyTree, source: PyTree, paths: Sequence[Path]) -> PyTree:
    """A `model_state` with the keys and counters of random numbers of another one.

    Args:
      model_state, source: nested dicts of the same structure.
      paths: see `Network.random_state`; those that are not in the dicts are ignored.
    """
    random_paths = frozenset(paths)

    def choose(path, current, first):
        keys = tuple(getattr(entry, "key", None) for entry in path)  # None in a tuple of arrays
        return first if keys in random_paths else current

    return jax.tree.map_with_path(choose, model_state, source)
