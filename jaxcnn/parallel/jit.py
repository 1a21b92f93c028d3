"""One device: the strategy that all others must agree with, and the shape of them all."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from jaxcnn.errors import InputError
from jaxcnn.parallel.options import compiler_options
from jaxcnn.training.objective import Batch
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import WHOLE, Spread


class Jit:
    """`jax.jit` on the first device.

    Attributes:
      devices: the devices it uses.
      options: compiler options of every program it compiles.
    """

    about = "jax.jit on one device"

    def __init__(self, devices: tuple[jax.Device, ...]):
        self.devices = devices[:1]
        self.options = compiler_options(devices[0].platform)
        self._shared = self._split = SingleDeviceSharding(devices[0])
        self._spread = WHOLE

    def check_batch_size(self, batch_size: int) -> None:
        """Raises `InputError` unless the batch divides evenly among the devices."""
        count = len(self.devices)
        if batch_size < 1 or batch_size % count:
            nearest = max(1, round(batch_size / count)) * count
            raise InputError(
                f"batch size {batch_size} cannot be used on {count} device(s): it must be a positive multiple of {count}, such as {nearest}"
            )

    def place(self, state: TrainState) -> TrainState:
        """A copy of the state on every device. The step donates it; the original stays whole."""
        copy = jax.tree.map(jnp.copy, state)  # device_put alone shares the buffer with the first device
        return jax.device_put(copy, self._shared)

    def place_batch(self, batch: Batch) -> Batch:
        """A global batch ``[N, …]``, each device its share."""
        return jax.device_put(batch, self._split)

    def place_data(self, data: Any) -> Any:
        """Arrays that every device needs whole: a resident data set."""
        return jax.device_put(data, self._shared)

    def compile(self, step: Callable, *, resident: bool = False) -> Callable:
        """Compiles ``step(state, batch) -> (state, metrics)`` at its first call; the state is donated.

        Args:
          step: a `TrainStep`, or with `resident` a ``run(state, data, count)`` of `many_train_steps`.
          resident: the second argument was placed by `place_data`, not by `place_batch`.

        Returns:
          A callable with ``lower``, as `jax.jit` gives.
        """
        return self._jit(step, donate_argnums=0)

    def compile_evaluation(self, evaluate: Callable, *, resident: bool = False) -> Callable:
        """Compiles ``evaluate(state, batch) -> metrics``, or with `resident` that of `whole_evaluation`."""
        return self._jit(evaluate)

    def fetch(self, state: TrainState) -> TrainState:
        """The state as a single device would hold it, on the host."""
        return jax.device_get(state)

    def _jit(self, function: Callable, **settings: Any) -> Callable:
        spread: Spread = self._spread
        return jax.jit(functools.partial(function, spread=spread), compiler_options=self.options or None, **settings)
