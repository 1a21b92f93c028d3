"""Pipeline parallelism: each device has some layers of a sequential network, for all of the batch.

One program runs on every device, as with the other strategies, so that the compilers of the
preflight and `jax.export` take it, and many steps are one dispatch. A device finds its stage by its
position in the mesh (`lax.switch`). What differs between stages (parameters, optimizer state,
activations) is packed into flat buffers of the largest stage's size.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.errors import InputError
from jaxcnn.parallel import staged_evaluation, staged_training
from jaxcnn.parallel.shapes import Build, with_sharding
from jaxcnn.parallel.staged_network import AXIS, PACKED, StagedNetwork, divide
from jaxcnn.parallel.strategy import Strategy
from jaxcnn.training.eval_step import EvalStep
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.sharding import BatchSharding
from jaxcnn.training.state import Shapes, TrainState
from jaxcnn.training.step import TrainStep


class Pipeline(Strategy):
    """A stage of a sequential network on each device, microbatches in the order of GPipe.

    A device has the parameters and the optimizer state of its stage, padded to those of the
    largest one, and the whole batch. `for_step` chooses the stages and must be called first.

    References:
      Huang et al. 2019, *GPipe: Efficient Training of Giant Neural Networks using Pipeline
      Parallelism*, arXiv 1811.06965.

    >>> import optax
    >>> from jaxcnn import models, training
    >>> state, step = training.create(models.build("lenet5"), optax.sgd(0.1), microbatches=4)
    >>> batch = {"image": jnp.ones((8, 32, 32, 1)), "label": jnp.arange(8)}
    >>> pipeline = Pipeline(jax.devices()[:2]).for_step(step, state, batch)
    >>> state, metrics = pipeline.compile(step)(pipeline.place(state), pipeline.place_batch(batch))
    >>> int(metrics["count"])
    8
    """

    about = "a stage of a sequential network on each device, over microbatches (GPipe)"
    any_network = False
    spans_processes = False

    def __init__(self, devices: Sequence[jax.Device], network: StagedNetwork | None = None):
        super().__init__(devices)
        self._network = network
        self._mesh = Mesh(self.devices, (AXIS,))
        self.mesh_sizes = dict(self._mesh.shape)
        replicated = NamedSharding(self._mesh, PartitionSpec())
        self.batch_placement = self.data_placement = replicated
        self._buffer_placement = NamedSharding(self._mesh, PartitionSpec(AXIS))
        if network:
            self.batch_sharding = BatchSharding(layers=_Layers(network))

    @classmethod
    def batch_multiple(cls, available: int, mesh: str | None = None) -> int:
        return 1

    @classmethod
    def state_copies(cls, available: int) -> int:
        return 1

    def for_step(self, step: TrainStep, state: Shapes, batch: Shapes) -> "Pipeline":
        """Divides the network into stages; see `staged_network.divide`."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (state, batch))
        network = divide(step, shapes[0], shapes[1]["image"], self._mesh)
        pipeline = Pipeline(self.devices, network)
        pipeline.options = self.options
        return pipeline

    @property
    def network(self) -> StagedNetwork:
        """The stages.

        Raises:
          InputError: `for_step` was not called.
        """
        if self._network is None:
            raise InputError(
                "strategy 'pipeline' has no stages yet: use what its "
                "for_step(step, state, batch) returns"
            )
        return self._network

    def create(self, build: Build) -> tuple[TrainState, TrainStep]:
        """A new train state, from which `place` copies each stage, and its step.

        It is in host memory; on the first device if JAX was started without a CPU, as by
        ``JAX_PLATFORMS=cuda``.
        """
        try:
            device = jax.local_devices(backend="cpu")[0]
        except RuntimeError:
            device = self.devices[0]
        with jax.default_device(device):
            return build()

    def place(self, state: TrainState) -> TrainState:
        if type(state) is not TrainState:
            raise InputError(
                f"strategy 'pipeline' cannot place a {type(state).__name__}: "
                "choose another strategy"
            )
        scalars = jax.tree.map(jnp.copy, _without_packed(state))
        packed = {
            name: packing.pack(getattr(state, name))
            for name, packing in self.network.packings.items()
        }
        return jax.device_put(scalars.replace(**packed), self._state_shardings())

    def abstract_state(self, state: Shapes) -> Shapes:
        packed = {
            name: with_sharding(packing.shapes(), self._buffer_placement)
            for name, packing in self.network.packings.items()
        }
        scalars = with_sharding(_without_packed(state), self.data_placement)
        return scalars.replace(**packed)

    def abstract_saved(self, state: Shapes) -> Shapes:
        return state

    def train_program(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        placement = self._state_shardings(), self.data_placement
        return self._jit(step, placement, donate_argnums=0)

    def evaluation_program(
        self, evaluate: Callable, *, resident: bool = False
    ) -> jax.stages.Wrapped:
        return self._jit(evaluate, self.data_placement)

    def fetch(self, state: TrainState) -> TrainState:
        on_host = jax.device_get(state)
        whole = {
            name: packing.unpack(getattr(on_host, name))
            for name, packing in self.network.packings.items()
        }
        return on_host.replace(**whole)

    def _state_shardings(self) -> TrainState:
        return jax.tree.map(
            lambda spec: NamedSharding(self._mesh, spec),
            self.network.specs,
            is_leaf=lambda spec: isinstance(spec, PartitionSpec),
        )

    def _jit(self, function: Callable, placement: Any, **settings: Any) -> jax.stages.Wrapped:
        function = functools.partial(function, sharding=self.batch_sharding)
        return jax.jit(
            function,
            compiler_options=self.options or None,
            out_shardings=placement,
            **settings,
        )


@dataclass(frozen=True)
class _Layers:
    """Computes a step in stages; a `jaxcnn.training.sharding.LayerSharding`."""

    network: StagedNetwork

    def train(self, step: TrainStep, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        function = functools.partial(staged_training.train, self.network, step)

        def run(state, batch):
            state, metrics = function(_each_packed(state, lambda rows: rows[0]), batch)
            return _each_packed(state, lambda values: values[None]), metrics

        specs = self.network.specs
        return self._map(run, (specs, PartitionSpec()))(state, batch)

    def outputs(self, step: EvalStep, state: TrainState, images: Array) -> Array:
        function = functools.partial(staged_evaluation.outputs, self.network, step)

        def run(state, images):
            return function(_each_packed(state, lambda rows: rows[0]), images)

        return self._map(run, PartitionSpec())(state, images)

    def _map(self, function: Callable, out_specs: Any) -> Callable:
        """A function of a packed state and replicated arrays, run by every device."""
        return jax.shard_map(
            function,
            mesh=self.network.mesh,
            in_specs=(self.network.specs, PartitionSpec()),
            out_specs=out_specs,
            check_vma=False,
        )


def _each_packed(state: TrainState, function: Callable[[Array], Array]) -> TrainState:
    """Applies a function to the buffers of all packed fields."""
    return state.replace(**{name: jax.tree.map(function, getattr(state, name)) for name in PACKED})


def _without_packed(state: Any) -> Any:
    return state.replace(**{name: {} for name in PACKED})
