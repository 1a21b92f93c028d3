"""Training parallelism: many train states at once, by `jax.vmap`, with a share on each device.

The members are independent: the seeds of an ensemble, the folds of a cross-validation, the points
of a hyper-parameter grid. They never communicate, so that no device waits for another.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.parallel.options import compiler_options
from jaxcnn.training.state import TrainState

AXIS = "members"
# A tree, or a prefix of one as in `jax.vmap`, of 0 (an entry per member) and None (shared by all).
Axes = Any


class Members:
    """Maps a function of one member over all members.

    Attributes:
      count: the number of members.
      devices: the devices it uses: the largest number that divides the members evenly.
      options: compiler options of the programs it compiles.

    >>> members = Members(3, jax.devices())
    >>> squares = members.compile(lambda x, y: x * x + y, in_axes=(0, None))
    >>> values = members.place_data(jnp.arange(3.0), 0)
    >>> [float(square) for square in members.fetch(squares(values, jnp.float32(1)))]
    [1.0, 2.0, 5.0]
    """

    def __init__(self, count: int, devices: Sequence[jax.Device]):
        """For `count` members, whose states and data have equal shapes.

        Raises:
          ValueError: no members, or no devices.
        """
        if count < 1 or not devices:
            raise ValueError(
                f"at least one member and one device are needed, got {count} and {len(devices)}"
            )
        device_count = max(number for number in range(1, len(devices) + 1) if count % number == 0)
        self.count = count
        self.devices = tuple(devices[:device_count])
        self.options = compiler_options(devices[0].platform)
        self._mesh = Mesh(self.devices, (AXIS,))

    def place(self, states: Sequence[TrainState]) -> TrainState:
        """Stacks one state per member into arrays ``[members, …]`` on the devices.

        Raises:
          ValueError: the number of states is not the number of members.
        """
        if len(states) != self.count:
            raise ValueError(f"{len(states)} states for {self.count} members")
        return self.place_data(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), 0)

    def place_data(self, data: Any, axes: Axes = None) -> Any:
        """Puts data on the devices.

        Args:
          data: a tree of arrays.
          axes: 0 where an array has a leading axis of members, which is divided among the devices;
            None where every device needs the whole array.
        """
        shardings = jax.tree.map(
            lambda axis: NamedSharding(self._mesh, _partition_spec(axis)), axes, is_leaf=_is_none
        )
        return jax.device_put(data, shardings)

    def compile(self, function: Callable, in_axes: tuple[Axes, ...]) -> Callable:
        """Compiles a function of one member for all members, at its first call; donates nothing.

        Args:
          function: a `TrainStep`, the ``run`` of `multi_step`, or any function of one member's
            arrays.
          in_axes: an entry per argument: 0 where each member has its own, None where all share one.

        Returns:
          A callable with ``lower``, as `jax.jit` returns. Its results have a leading axis of
          members.
        """
        mapped = jax.vmap(function, in_axes=in_axes)
        if len(self.devices) > 1:
            mapped = jax.shard_map(
                mapped,
                mesh=self._mesh,
                in_specs=jax.tree.map(_partition_spec, in_axes, is_leaf=_is_none),
                out_specs=PartitionSpec(AXIS),
                check_vma=False,
            )
        return jax.jit(mapped, compiler_options=self.options or None)

    def fetch(self, tree: Any) -> list[Any]:
        """Copies the results of a compiled function to the host, as one tree per member."""
        on_host = jax.device_get(tree)
        return [
            jax.tree.map(lambda leaf, member=member: leaf[member], on_host)
            for member in range(self.count)
        ]


def _partition_spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(AXIS)


def _is_none(value: Any) -> bool:
    return value is None
