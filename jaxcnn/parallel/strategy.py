"""What every strategy has: the devices it uses, where it puts state and data, how it compiles."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxcnn.errors import InputError
from jaxcnn.parallel.options import compiler_options
from jaxcnn.training.state import PyTree, TrainState
from jaxcnn.training.step import UNSHARDED, BatchSharding, TrainStep

Shapes = Any  # a tree of `jax.ShapeDtypeStruct`


class Strategy(abc.ABC):
    """Places a train state and its batches on devices, and compiles the step that works on them.

    The base class holds what is the same wherever state, batch and data have one `Sharding` each.
    A subclass sets the three placements in its ``__init__``, after ``super().__init__``, and
    implements `compile` and `compile_evaluation`; it overrides whatever else differs.

    Attributes:
      about: one line for listings.
      any_network: whether it computes every network.
      devices: the devices it uses.
      options: compiler options of the programs it compiles.
      batch_sharding: passed to every step it compiles.
      state_placement, batch_placement, data_placement: shardings (or trees of them) for the train
        state, a batch, and arrays that every device needs whole.
    """

    about: ClassVar[str]
    any_network: ClassVar[bool] = True
    state_placement: Any
    batch_placement: Any
    data_placement: Any

    def __init__(self, devices: Sequence[jax.Device]):
        """Over the first `device_count` of the devices given."""
        self.devices = tuple(devices[: self.device_count(len(devices))])
        self.options = compiler_options(self.devices[0].platform)
        self.batch_sharding: BatchSharding = UNSHARDED

    @classmethod
    def device_count(cls, available: int) -> int:
        """The number of devices it uses out of `available`."""
        return available

    @classmethod
    def batch_multiple(cls, available: int) -> int:
        """What every batch size must be a multiple of: each device works on an equal share.

        A strategy that does not divide the batch overrides this with 1.
        """
        return cls.device_count(available)

    @classmethod
    def state_copies(cls, available: int) -> int:
        """The number of copies of the train state on all devices together."""
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
        multiple = self.batch_multiple(len(self.devices))
        if batch_size < 1 or batch_size % multiple:
            nearest = max(1, round(batch_size / multiple)) * multiple
            raise InputError(
                f"batch size {batch_size} cannot be used on {len(self.devices)} device(s): it must "
                f"be a positive multiple of {multiple}, such as {nearest}"
            )

    def place(self, state: TrainState) -> TrainState:
        """Copies the state to the devices. The step donates the copy; the original stays valid."""
        copy = jax.tree.map(jnp.copy, state)  # device_put alone shares the first device's buffer
        return jax.device_put(copy, self.state_placement)

    def place_batch(self, batch: PyTree) -> PyTree:
        """Puts a global batch ``[N, …]`` on the devices, a share on each."""
        return jax.device_put(batch, self.batch_placement)

    def place_data(self, data: PyTree) -> PyTree:
        """Puts arrays that every device needs whole, such as a data set, on the devices."""
        return jax.device_put(data, self.data_placement)

    def abstract_state(self, state: Shapes) -> Shapes:
        """Shapes and shardings of what `place` returns; the devices need not be attached."""
        return with_sharding(state, self.state_placement)

    def abstract_batch(self, batch: Shapes) -> Shapes:
        """Shapes and shardings of what `place_batch` returns; the devices need not be attached."""
        return with_sharding(batch, self.batch_placement)

    @abc.abstractmethod
    def compile(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        """Compiles ``step(state, batch) -> (state, metrics)`` at its first call; donates the state.

        Args:
          step: a `TrainStep`, or with `resident` the ``run(state, data, count)`` of `multi_step`.
          resident: the second argument was placed by `place_data`, not by `place_batch`.

        Returns:
          A callable with ``lower``, as `jax.jit` returns.
        """

    @abc.abstractmethod
    def compile_evaluation(self, evaluate: Callable, *, resident: bool = False) -> Callable:
        """Compiles ``evaluate(state, batch) -> metrics``, or the run of `evaluate_dataset`."""

    def compile_for_export(self, step: Callable) -> jax.stages.Wrapped:
        """Compiles as `compile` does, but always with `jax.jit`, as `jax.export` requires."""
        return self.compile(step)

    def fetch(self, state: TrainState) -> TrainState:
        """The state in host memory, in the shapes that a single device has."""
        return jax.device_get(state)


def batch_share(batch: Shapes, device_count: int) -> Shapes:
    """Shapes of the part of a global batch that each of `device_count` devices works on."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((x.shape[0] // device_count, *x.shape[1:]), x.dtype), batch
    )


def with_sharding(shapes: Shapes, sharding: jax.sharding.Sharding) -> Shapes:
    """The same shapes, each with this sharding."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes)
