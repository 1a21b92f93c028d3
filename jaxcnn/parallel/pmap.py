"""Data parallelism by `jax.pmap`: each device runs the step on its share and sums over a named axis."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.parallel.data import AXIS, Data
from jaxcnn.training.objective import Batch
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import Spread


class Pmap(Data):
    """`jax.pmap`: state and batch carry a leading axis, an entry a device. It takes no compiler options."""

    about = "jax.pmap, a replica of the state on each device"

    def __init__(self, devices: tuple[jax.Device, ...]):
        super().__init__(devices)
        self.options = {}
        self._spread = Spread(AXIS, self._share)

    def _share(self, rows: Array) -> Array:
        size = len(rows) // len(self.devices)
        return lax.dynamic_slice_in_dim(rows, lax.axis_index(AXIS) * size, size)

    def place(self, state: TrainState) -> TrainState:
        count = len(self.devices)
        stacked = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), state)
        return jax.device_put(stacked, self._split)

    def place_batch(self, batch: Batch) -> Batch:
        count = len(self.devices)
        shares = jax.tree.map(lambda x: x.reshape(count, len(x) // count, *x.shape[1:]), batch)
        return jax.device_put(shares, self._split)

    def compile(self, step: Callable, *, resident: bool = False) -> Callable:
        in_axes = (0, None, None) if resident else (0, 0)
        return self._pmap(step, in_axes=in_axes, out_axes=(0, None), donate_argnums=0)

    def compile_evaluation(self, evaluate: Callable, *, resident: bool = False) -> Callable:
        return self._pmap(evaluate, in_axes=(0, None, None) if resident else (0, 0), out_axes=None)

    def fetch(self, state: TrainState) -> TrainState:
        return jax.device_get(jax.tree.map(lambda x: x[0], state))

    def _pmap(self, function: Callable, **settings: Any) -> Callable:
        with_spread = functools.partial(function, spread=self._spread)
        return jax.pmap(with_spread, axis_name=AXIS, devices=list(self.devices), **settings)
