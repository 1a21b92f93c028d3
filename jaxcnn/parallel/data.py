"""Data parallelism as one program: the compiler partitions it by the shardings of its arguments."""

import functools
from collections.abc import Callable, Sequence

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.parallel.strategy import Strategy
from jaxcnn.training.step import BatchSharding

AXIS = "data"


class Data(Strategy):
    """`jax.jit` over a mesh: state replicated, batch divided, gradients summed by the compiler."""

    about = "jax.jit over a mesh, the batch divided by NamedSharding"

    def __init__(self, devices: Sequence[jax.Device]):
        super().__init__(devices)
        mesh = Mesh(self.devices, (AXIS,))
        self.state_placement = self.data_placement = NamedSharding(mesh, PartitionSpec())
        self.batch_placement = NamedSharding(mesh, PartitionSpec(AXIS))
        self.batch_sharding = BatchSharding(shard=self._constrain)

    def compile(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        return self._jit(step, donate_argnums=0)

    def compile_evaluation(self, evaluate: Callable, *, resident: bool = False) -> Callable:
        return self._jit(evaluate)

    def _constrain(self, rows: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(rows, self.batch_placement)

    def _jit(self, function: Callable, **settings) -> jax.stages.Wrapped:
        function = functools.partial(function, sharding=self.batch_sharding)
        options = self.options or None
        return jax.jit(
            function, compiler_options=options, out_shardings=self.state_placement, **settings
        )
