"""One device: the strategy that every other one must reproduce."""

import functools
from collections.abc import Callable, Sequence

import jax
from jax.sharding import SingleDeviceSharding

from jaxcnn.parallel.strategy import Strategy


class Jit(Strategy):
    """`jax.jit` on the first device."""

    about = "jax.jit on one device"
    spans_processes = False

    def __init__(self, devices: Sequence[jax.Device]):
        super().__init__(devices)
        placement = SingleDeviceSharding(self.devices[0])
        self.state_placement = self.batch_placement = self.data_placement = placement

    @classmethod
    def device_count(cls, available: int) -> int:
        return 1

    def train_program(self, step: Callable, *, resident: bool = False) -> jax.stages.Wrapped:
        return self._jit(step, donate_argnums=0)

    def evaluation_program(
        self, evaluate: Callable, *, resident: bool = False
    ) -> jax.stages.Wrapped:
        return self._jit(evaluate)

    def _jit(self, function: Callable, **settings) -> jax.stages.Wrapped:
        function = functools.partial(function, sharding=self.batch_sharding)
        return jax.jit(function, compiler_options=self.options or None, **settings)
