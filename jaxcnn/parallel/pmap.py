"""Data parallelism by `jax.pmap`: each device steps on its share and sums over a named axis."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxcnn.parallel.rules import DATA as AXIS
from jaxcnn.parallel.shapes import Build, abstract, batch_share, row_count
from jaxcnn.parallel.strategy import Strategy
from jaxcnn.training.sharding import BatchSharding
from jaxcnn.training.state import PyTree, Shapes, TrainState
from jaxcnn.training.step import TrainStep


class Pmap(Strategy):
    """`jax.pmap`: state and batch have a leading axis, an entry per device.

    `jax.pmap` takes no compiler options.
    """

    about = "jax.pmap, a replica of the state on each device"
    spans_processes = False

    def __init__(self, devices: Sequence[jax.Device]):
        super().__init__(devices)
        self.options = {}
        mesh = Mesh(self.devices, (AXIS,))
        self.state_placement = self.batch_placement = NamedSharding(mesh, PartitionSpec(AXIS))
        self.data_placement = NamedSharding(mesh, PartitionSpec())
        self.batch_sharding = BatchSharding(AXIS, self._share)

    def create(self, build: Build) -> tuple[TrainState, TrainStep]:
        """As the base class, on the first device: `place` makes the replicas."""
        _, step = abstract(build)
        state = jax.jit(lambda: build()[0], out_shardings=SingleDeviceSharding(self.devices[0]))()
        return state, step

    def place(self, state: TrainState) -> TrainState:
        return jax.tree.map(self._replicate, state)

    def place_batch(self, batch: PyTree) -> PyTree:
        self._check_rows(row_count(batch))
        count = len(self.devices)
        shares = jax.tree.map(lambda x: x.reshape(count, len(x) // count, *x.shape[1:]), batch)
        return jax.device_put(shares, self.batch_placement)

    def abstract_state(self, state: Shapes) -> Shapes:
        return self._stacked(state)

    def abstract_saved(self, state: Shapes) -> Shapes:
        return state

    def abstract_batch(self, batch: Shapes) -> Shapes:
        return self._stacked(batch_share(batch, len(self.devices)))

    def train_program(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        in_axes = (0, None, None) if resident else (0, 0)
        return self._pmap(step, in_axes=in_axes, out_axes=(0, None), donate_argnums=0)

    def evaluation_program(
        self, evaluate: Callable, *, resident: bool = False
    ) -> jax.stages.Wrapped:
        return self._pmap(evaluate, in_axes=(0, None, None) if resident else (0, 0), out_axes=None)

    def compile_for_export(self, step: Callable) -> jax.stages.Wrapped:
        return jax.jit(self.train_program(step))

    def fetch(self, state: TrainState) -> TrainState:
        return jax.device_get(jax.tree.map(lambda x: x[0], state))

    def _replicate(self, leaf: Any) -> Array:
        """``[devices, …]``, of which each device gets its copy without those of the others."""
        copies = [jax.device_put(leaf[None], device) for device in self.devices]
        shape = len(copies), *leaf.shape
        return jax.make_array_from_single_device_arrays(shape, self.state_placement, copies)

    def _share(self, rows: Array) -> Array:
        size = len(rows) // len(self.devices)
        return lax.dynamic_slice_in_dim(rows, lax.axis_index(AXIS) * size, size)

    def _stacked(self, shapes: Shapes) -> Shapes:
        count = len(self.devices)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), shapes)

    def _pmap(self, function: Callable, **settings) -> jax.stages.Wrapped:
        function = functools.partial(function, sharding=self.batch_sharding)
        return jax.pmap(function, axis_name=AXIS, devices=list(self.devices), **settings)
