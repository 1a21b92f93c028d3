"""Strategies that are one program over a mesh: the compiler divides it by the shardings given."""

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.ops.layout import ChannelLayout, reshard
from jaxcnn.parallel.groups import refuse_groups
from jaxcnn.parallel.mesh import mesh_shape
from jaxcnn.parallel.rules import DATA, TENSOR, Rule, parameter_shardings, state_shardings
from jaxcnn.parallel.strategy import Strategy
from jaxcnn.training.sharding import BatchSharding
from jaxcnn.training.state import PyTree, Shapes


class MeshStrategy(Strategy):
    """`jax.jit` over a mesh whose axes divide the batch, the train state, or both.

    A mesh axis `DATA` divides the batch. Parameters that are divided over the same axis are
    gathered before they are used, and their gradients are summed into parts. A mesh axis `TENSOR`
    divides channels, see `ChannelLayout`.

    Attributes:
      axes: the names of the mesh axes.
      default_rules: the rules of the strategy, which divide the train state.
      mesh: the devices.
      rules: the default ones, or those given.
    """

    axes: ClassVar[tuple[str, ...]]
    default_rules: ClassVar[tuple[Rule, ...]] = ()

    def __init__(
        self,
        devices: Sequence[jax.Device],
        mesh: str | None = None,
        rules: Sequence[Rule] | None = None,
    ):
        """Over all devices given.

        Args:
          devices: those that are neighbors here are neighbors along the last axis of the mesh.
          mesh: the shape of the mesh, see `mesh_shape`.
          rules: in place of the default ones.

        Raises:
          InputError: the mesh does not match the devices.
        """
        super().__init__(devices)
        self.mesh_text = mesh
        self.rules = self.default_rules if rules is None else tuple(rules)
        shape = mesh_shape(self.axes, len(self.devices), mesh)
        self.mesh = Mesh(np.reshape(np.asarray(self.devices, object), shape), self.axes)
        self.mesh_sizes = dict(self.mesh.shape)
        batch_axis = DATA if DATA in self.axes else None
        self.data_placement = NamedSharding(self.mesh, PartitionSpec())
        self.batch_placement = NamedSharding(self.mesh, PartitionSpec(batch_axis))
        layout = ChannelLayout(self.mesh, batch_axis, TENSOR) if TENSOR in self.axes else None
        self.batch_sharding = BatchSharding(
            shard=lambda rows: lax.with_sharding_constraint(rows, self.batch_placement),
            gather=self._gather,
            channel_layout=layout,
        )

    @classmethod
    def batch_multiple(cls, available: int, mesh: str | None = None) -> int:
        sizes = dict(zip(cls.axes, mesh_shape(cls.axes, available, mesh), strict=True))
        return sizes.get(DATA, 1)

    def state_shardings(self, state: Shapes) -> PyTree:
        return state_shardings(state, self.rules, self.mesh)

    def train_program(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        take_step: Callable = functools.partial(step, sharding=self.batch_sharding)
        if TENSOR in self.axes:
            take_step = refuse_groups(take_step, self.mesh_sizes[TENSOR])

        def run(state, *arguments):
            state, metrics = take_step(state, *arguments)
            state = lax.with_sharding_constraint(state, self.state_shardings(state))
            return state, lax.with_sharding_constraint(metrics, self.data_placement)

        return jax.jit(run, donate_argnums=0, compiler_options=self.options or None)

    def evaluation_program(
        self, evaluate: Callable, *, resident: bool = False
    ) -> jax.stages.Wrapped:
        def run(state, *arguments):
            return evaluate(state, *arguments, sharding=self.batch_sharding)

        options = self.options or None
        return jax.jit(run, out_shardings=self.data_placement, compiler_options=options)

    def _gather(self, params: PyTree) -> PyTree:
        """Parameters that the mesh axis of the batch divides, whole; the others as they are."""

        def gather(array, sharding):
            if DATA not in jax.tree.leaves(tuple(sharding.spec)):
                return array
            # Still divided after its conversion to half precision: half the bytes are gathered.
            array = lax.with_sharding_constraint(array, sharding)
            return reshard(array, self.data_placement, sharding)

        return jax.tree.map(gather, params, parameter_shardings(params, self.rules, self.mesh))
