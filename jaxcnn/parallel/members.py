"""Training parallelism: many train states at once, by `vmap` over them, a share of them on each device.

Members never speak to each other, so no device waits for another: an ensemble's seeds, the folds of a cross-validation,
the points of a hyper-parameter grid (E6).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.parallel.options import compiler_options
from jaxcnn.training.state import TrainState

AXIS = "members"
Axes = Any  # a tree of 0 (an entry a member) and None (shared by all), or the beginning of one, as in `jax.vmap`


class Members:
    """Makes a function of one member into one of all of them.

    Attributes:
      devices: those it uses: as many as divide the members evenly.
      options: compiler options of every program it compiles.
    """

    def __init__(self, count: int, devices: Sequence[jax.Device]):
        """For `count` members, which all have their states and data in the same shapes.

        Raises:
          ValueError: no members, or no devices.
        """
        if count < 1 or not devices:
            raise ValueError(f"needs members and devices, got {count} and {len(devices)}")
        used = max(number for number in range(1, len(devices) + 1) if count % number == 0)
        self.count = count
        self.devices = tuple(devices[:used])
        self.options = compiler_options(devices[0].platform)
        self._mesh = Mesh(self.devices, (AXIS,))

    def place(self, states: Sequence[TrainState]) -> TrainState:
        """The members' states as one, each array with an axis of members in front: ``[members, …]``."""
        if len(states) != self.count:
            raise ValueError(f"{len(states)} states for {self.count} members")
        return self.place_data(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), 0)

    def place_data(self, data: Any, axes: Axes = None) -> Any:
        """Data on the devices: each member's own where `axes` says 0, whole on every device where it says None."""
        shardings = jax.tree.map(
            lambda axis: NamedSharding(self._mesh, _spec(axis)), axes, is_leaf=_is_axis
        )
        return jax.device_put(data, shardings)

    def compile(self, function: Callable, in_axes: tuple[Axes, ...]) -> Callable:
        """Compiles ``function(state, …)`` of one member for all of them at its first call; nothing is donated.

        Args:
          function: a `TrainStep`, a ``run`` of `multi_step`, or any function of one member's arrays.
          in_axes: of its arguments: 0 where each member has its own, None where they share one.

        Returns:
          A callable with ``lower``, as `jax.jit` gives; each of its results has an axis of members in front.
        """
        specs = jax.tree.map(_spec, in_axes, is_leaf=_is_axis)
        mapped = jax.vmap(function, in_axes=in_axes)
        sharding = jax.shard_map(
            mapped, mesh=self._mesh, in_specs=specs, out_specs=PartitionSpec(AXIS), check_vma=False
        )
        return jax.jit(sharding, compiler_options=self.options or None)

    def fetch(self, tree: Any) -> list[Any]:
        """Each member's part of what a program gave, on the host."""
        host = jax.device_get(tree)
        return [
            jax.tree.map(lambda leaf, member=member: leaf[member], host)
            for member in range(self.count)
        ]


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(AXIS)


def _is_axis(value: Any) -> bool:
    return value is None
