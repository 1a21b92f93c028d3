"""What every strategy has: the devices it uses, where it puts state and data, how it compiles."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxcnn.errors import InputError
from jaxcnn.parallel import dispatch, placement
from jaxcnn.parallel.options import compiler_options
from jaxcnn.parallel.shapes import Build, abstract, row_count, with_sharding
from jaxcnn.training.checkpoint import Checkpoints
from jaxcnn.training.history import History
from jaxcnn.training.loop import Save
from jaxcnn.training.sharding import UNSHARDED, BatchSharding
from jaxcnn.training.state import PyTree, Shapes, TrainState
from jaxcnn.training.step import TrainStep


class Strategy(abc.ABC):
    """Places a train state and its batches on devices, and compiles the step that works on them.

    The base class holds what is the same wherever state, batch and data have one `Sharding` each.
    A subclass sets the three placements in its ``__init__``, after ``super().__init__``, and
    implements `train_program` and `evaluation_program`; it overrides whatever else differs. One
    that divides the state array by array overrides `state_shardings` in place of `state_placement`.

    Attributes:
      about: one line for listings.
      spans_processes: whether its devices may belong to several processes.
      any_network: whether it computes every network.
      devices: the devices it uses.
      options: compiler options of the programs it compiles.
      batch_sharding: passed to every step it compiles.
      mesh_sizes: the number of devices along each mesh axis; empty without a mesh.
      mesh_text: the shape of the mesh as it was requested; None for the default one.
      state_placement, batch_placement, data_placement: shardings (or trees of them) for the train
        state, a batch, and arrays that every device needs whole.
    """

    about: ClassVar[str]
    spans_processes: ClassVar[bool] = True
    any_network: ClassVar[bool] = True
    state_placement: Any
    batch_placement: Any
    data_placement: Any

    def __init__(self, devices: Sequence[jax.Device]):
        """Over the first `device_count` of the devices given."""
        self.devices = tuple(devices[: self.device_count(len(devices))])
        self.options = compiler_options(self.devices[0].platform)
        self.batch_sharding: BatchSharding = UNSHARDED
        self.mesh_sizes: dict[str, int] = {}
        self.mesh_text: str | None = None

    @classmethod
    def device_count(cls, available: int) -> int:
        """The number of devices it uses out of `available`."""
        return available

    @classmethod
    def batch_multiple(cls, available: int, mesh: str | None = None) -> int:
        """What every batch size must be a multiple of: the number of equal shares.

        A strategy that does not divide the batch among all devices overrides this.

        Args:
          available: the number of devices.
          mesh: the shape of the mesh; None for the default one.
        """
        return cls.device_count(available)

    @classmethod
    def state_copies(cls, available: int) -> int:
        """The number of devices that hold the train state, or a share of it, each on its own."""
        return cls.device_count(available)

    def for_step(self, step: TrainStep, state: Shapes, batch: Shapes) -> "Strategy":
        """The strategy for one network: itself, unless its placements depend on the network.

        Args:
          step: the step that it will compile.
          state: the state that it will place, or its shapes.
          batch: a batch, or its shapes.

        Raises:
          InputError: the strategy cannot divide this network or this batch.
        """
        return self

    def check_batch_size(self, batch_size: int) -> None:
        """Raises `InputError` unless the batch size is a positive multiple of `batch_multiple`."""
        multiple = self.batch_multiple(len(self.devices), self.mesh_text)
        if batch_size < 1 or batch_size % multiple:
            nearest = max(1, round(batch_size / multiple)) * multiple
            raise InputError(
                f"batch size {batch_size} cannot be used on {len(self.devices)} device(s): it must "
                f"be a positive multiple of {multiple}, such as {nearest}"
            )

    def state_shardings(self, state: Shapes) -> Any:
        """The sharding of each array of a train state.

        Raises:
          InputError: the rules of the strategy cannot divide the state.
        """
        return jax.tree.map(lambda leaf: self.state_placement, state)

    def create(self, build: Build) -> tuple[TrainState, TrainStep]:
        """A new train state whose arrays lie where `place` puts them, and its step.

        Each device computes its own part of the initial values, so that none has to hold the whole
        state.

        Args:
          build: ``build() -> (state, step)``, which calls `training.create`; it is traced.

        >>> from jaxcnn import models, training
        >>> import optax
        >>> def build():
        ...     return training.create(models.build("logistic"), optax.sgd(0.1))
        >>> state, step = strategy("fsdp").create(build)  # doctest: +SKIP
        """
        shapes, step = abstract(build)
        shardings = self.state_shardings(shapes)
        return jax.jit(lambda: build()[0], out_shardings=shardings)(), step

    def place(self, state: TrainState) -> TrainState:
        """Copies the state to the devices. The step donates the copy; the original stays valid.

        Args:
          state: on a device, in host memory, or as `create` returns it.
        """
        # device_put alone may share the first device's buffer
        copy = jax.tree.map(lambda x: jnp.copy(x) if isinstance(x, jax.Array) else x, state)
        return placement.place(copy, self.state_shardings(state))

    def place_batch(self, batch: PyTree) -> PyTree:
        """Puts a global batch ``[N, …]`` on the devices, a share on each.

        Raises:
          InputError: N is not a multiple of `batch_multiple`; see `pad_batch`.
        """
        self._check_rows(row_count(batch))
        return placement.place(batch, self.batch_placement)

    def pad_batch(self, batch: PyTree) -> PyTree:
        """A batch of any size, padded to a multiple of `batch_multiple` for `place_batch`.

        The padding rows are copies of the last one, and the ``mask`` leaves them out of every
        metric and every gradient. Batch norm in training does not see the mask: use it for
        evaluation, or for networks without batch norm.

        Args:
          batch: a dict of arrays ``[N, …]`` in host memory, with or without a ``mask``.

        Returns:
          The batch with at least N rows and a ``mask: f32[N + padding]``, 0 for padding rows.

        Raises:
          InputError: an empty batch, or arrays of different numbers of rows.

        >>> from jaxcnn import parallel
        >>> batch = {"image": np.zeros((3, 2, 2, 1), np.uint8), "label": np.array([0, 1, 2])}
        >>> parallel.strategy("jit").pad_batch(batch)["mask"].tolist()
        [1.0, 1.0, 1.0]
        """
        count = row_count(batch)
        multiple = self.batch_multiple(len(self.devices), self.mesh_text)
        padding = -count % multiple
        mask = np.asarray(batch.get("mask", np.ones(count)), np.float32)
        rows = np.minimum(np.arange(count + padding), count - 1)
        padded = {name: np.asarray(values)[rows] for name, values in batch.items()}
        return padded | {"mask": np.pad(mask, (0, padding))}

    def local_rows(self, count: int) -> np.ndarray:
        """The rows of a global batch of `count` that the devices of this process work on.

        Returns:
          ``i64[n]``, ascending; all rows if there is one process.
        """
        return placement.local_rows(self.batch_placement, count)

    def place_rows(self, rows: PyTree, count: int) -> PyTree:
        """Puts a global batch on the devices, as `place_batch`, from the part of each process.

        Args:
          rows: the rows of `local_rows`, in that order.
          count: rows of the global batch.
        """
        if all(len(leaf) == count for leaf in jax.tree.leaves(rows)):
            return self.place_batch(rows)
        self._check_rows(count)
        return placement.place_rows(rows, self.batch_placement, count)

    def place_data(self, data: PyTree) -> PyTree:
        """Puts arrays that every device needs whole, such as a data set, on the devices."""
        return placement.place(data, self.data_placement)

    def abstract_state(self, state: Shapes) -> Shapes:
        """Shapes and shardings of what `place` returns; the devices need not be attached."""
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            state,
            self.state_shardings(state),
        )

    def abstract_batch(self, batch: Shapes) -> Shapes:
        """Shapes and shardings of what `place_batch` returns; the devices need not be attached."""
        return with_sharding(batch, self.batch_placement)

    def compile(self, step: Callable, *, resident: bool = False) -> Callable:
        """Compiles ``step(state, batch) -> (state, metrics)`` at its first call; donates the state.

        Args:
          step: a `TrainStep`, or with `resident` the ``run(state, data, count)`` of `multi_step`.
          resident: the second argument was placed by `place_data`, not by `place_batch`.

        Returns:
          A callable with ``lower``, as `jax.jit` returns. On several simulated devices its call
          waits for the results.
        """
        return self.dispatchable(self.train_program(step, resident=resident))

    def compile_evaluation(self, evaluate: Callable, *, resident: bool = False) -> Callable:
        """Compiles ``evaluate(state, batch) -> metrics``, or the run of `evaluate_dataset`."""
        return self.dispatchable(self.evaluation_program(evaluate, resident=resident))

    def compile_for_export(self, step: Callable) -> jax.stages.Wrapped:
        """Compiles as `compile` does, but always with `jax.jit`, as `jax.export` requires."""
        return self.train_program(step)

    def dispatchable(self, program: Callable) -> Callable:
        """`dispatch.dispatchable` for a program that was compiled ahead of time."""
        return dispatch.dispatchable(program, self.local_devices)

    @abc.abstractmethod
    def train_program(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        """The jitted function of `compile`."""

    @abc.abstractmethod
    def evaluation_program(
        self, evaluate: Callable, *, resident: bool = False
    ) -> jax.stages.Wrapped:
        """The jitted function of `compile_evaluation`."""

    def fetch(self, state: TrainState) -> TrainState:
        """The state in host memory, in the shapes that a single device has."""
        return placement.fetch(state)

    def saver(self, checkpoints: Checkpoints) -> Save:
        """The `save` of `training.fit` that keeps the placed states in a checkpoint folder."""

        def save(state: TrainState, best: TrainState | None, history: History) -> None:
            checkpoints.save(self.to_save(state), best and self.to_save(best), history)

        return save

    def to_save(self, state: TrainState) -> TrainState:
        """The state as a checkpoint stores it, in the shapes that a single device has.

        It is in host memory; with several processes it stays on the devices, and each process
        writes the parts that it holds.
        """
        is_local = all(leaf.is_fully_addressable for leaf in jax.tree.leaves(state))
        return self.fetch(state) if is_local else state

    def abstract_saved(self, state: Shapes) -> Shapes:
        """Shapes of what `to_save` returns, and where a restored state is put."""
        return self.abstract_state(state)

    def _check_rows(self, count: int) -> None:
        """Raises `InputError` unless the rows of a batch can be divided among the devices."""
        multiple = self.batch_multiple(len(self.devices), self.mesh_text)
        if count % multiple:
            raise InputError(
                f"a batch of {count} examples cannot be divided into {multiple} equal shares for "
                f"{len(self.devices)} devices: in training leave out a last partial batch; for "
                f"evaluation place_batch(pad_batch(batch)) masks {-count % multiple} padding rows"
            )

    @property
    def local_devices(self) -> tuple[jax.Device, ...]:
        """Those of its devices that belong to this process."""
        here = jax.process_index()
        return tuple(device for device in self.devices if device.process_index == here)
