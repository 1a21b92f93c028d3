"""Arrays between host and devices, in one process or several.

With several processes, each places only what its own devices hold; no process needs another one's
part, and no copy is compared between processes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Sharding


def place(tree: Any, shardings: Any) -> Any:
    """Puts whole arrays, the same in every process, on the devices.

    Args:
      tree: of arrays in host memory, on a device of this process, or already global.
      shardings: a `Sharding` for all, or a tree of them.
    """
    every = jax.tree.leaves(shardings, is_leaf=lambda node: isinstance(node, Sharding))
    if all(sharding.is_fully_addressable for sharding in every):
        return jax.device_put(tree, shardings)
    return _map(_place, shardings, tree)


def place_rows(tree: Any, shardings: Any, count: int) -> Any:
    """Puts a global batch of `count` rows on the devices, from the rows that this process has.

    Args:
      tree: of arrays ``[n, …]`` on the host: the rows of `local_rows`, in that order.
      shardings: a `Sharding` for all, or a tree of them.
      count: rows of the global batch.
    """

    def place_array(sharding: Sharding, local: np.ndarray) -> Array:
        rows = local_rows(sharding, count)
        # Positions in the local array; those of other processes' rows do not matter.
        position = np.zeros(count, np.int64)
        position[rows] = np.arange(len(rows))
        shape = (count, *local.shape[1:])
        return _assemble(shape, sharding, lambda index: local[position[index[0]]])

    return _map(place_array, shardings, tree)


def local_rows(sharding: Sharding, count: int) -> np.ndarray:
    """The rows of a global batch ``[count, …]`` that the devices of this process hold.

    Returns:
      ``i64[n]``, ascending, without repetitions.
    """
    indices = sharding.addressable_devices_indices_map((count,)).values()
    rows = [np.arange(count)[index] for index in indices]
    return np.unique(np.concatenate(rows)) if rows else np.arange(0)


def fetch(tree: Any) -> Any:
    """Whole arrays in host memory, in every process; collects the parts that others hold."""
    return jax.tree.map(lambda x: jax.device_get(_replicated(x)), tree)


def _map(function: Callable, shardings: Any, tree: Any) -> Any:
    """Applies ``function(sharding, array)`` to a tree; `shardings` may be a prefix of it."""
    return jax.tree.map(
        lambda sharding, part: jax.tree.map(lambda leaf: function(sharding, leaf), part),
        shardings,
        tree,
        is_leaf=lambda node: isinstance(node, Sharding),
    )


def _place(sharding: Sharding, array: Any) -> Array:
    if not getattr(array, "is_fully_addressable", True):
        return jax.device_put(array, sharding)
    array = array if isinstance(array, jax.Array) else np.asarray(array)
    return _assemble(array.shape, sharding, lambda index: array[index])


def _assemble(shape: tuple[int, ...], sharding: Sharding, part: Callable[[Any], Any]) -> Array:
    """A global array from the parts that this process has; each is copied explicitly."""
    parts = [
        jax.device_put(part(index), device)
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _replicated(array: Any) -> Any:
    """A copy that every device has whole, where this process does not have all parts."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return array
    mesh = array.sharding.mesh  # type: ignore[attr-defined]  # only a mesh spans processes
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(jnp.copy, out_shardings=whole)(array)
