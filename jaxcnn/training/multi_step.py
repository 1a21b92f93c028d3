"""Loops inside one compiled program, over data that is already on the device."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.sharding import UNSHARDED, BatchSharding
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep


class TrainFeed(Protocol):
    """Gathers training batches from data on the device, inside a compiled program."""

    @property
    def capacity(self) -> int:
        """The largest number of steps in one dispatch."""
        ...

    def order(self, data: Any, step: Array) -> Array:
        """The order of the epoch that `step` belongs to; all steps of a dispatch share it."""
        ...

    def batch(self, data: Any, order: Array, step: Array, sharding: BatchSharding) -> Batch:
        """The training batch of a step."""
        ...


class EvaluationFeed(Protocol):
    """Gathers batches that hold each example once, inside a compiled program."""

    def evaluation_batches(self, count: Array) -> Array:
        """The number of batches for `count` examples; the last one may be padded."""
        ...

    def evaluation_batch(
        self, data: Any, index: Array, count: Array, sharding: BatchSharding
    ) -> Batch:
        """The batch at `index`; rows beyond the first `count` examples are masked."""
        ...


class Evaluation(Protocol):
    """An `EvalStep`, or another function of a state and a batch that returns summed metrics."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        ...

    def __call__(self, state: TrainState, batch: Batch, sharding: BatchSharding) -> Metrics:
        """Masked sums over the global batch."""
        ...


def multi_step(step: TrainStep, feed: TrainFeed) -> Callable:
    """Returns ``run(state, data, count) -> (state, metrics)``, which takes `count` train steps.

    All steps must belong to one epoch. `count` is traced, so that a dispatch of any length is the
    same program with the same rounding. Each metric is ``f32[feed.capacity]``: an entry per step,
    zero after the first `count`.
    """

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> tuple[TrainState, Metrics]:
        order = feed.order(data, state.step)

        def body(i, carry):
            state, totals = carry
            batch = feed.batch(data, order, state.step, sharding)
            state, metrics = step(state, batch, sharding)
            return state, {name: totals[name].at[i].set(value) for name, value in metrics.items()}

        zeros = {name: jnp.zeros(feed.capacity) for name in step.metrics}
        return lax.fori_loop(0, count, body, (state, zeros))

    return run


def evaluate_dataset(evaluate: Evaluation, feed: EvaluationFeed) -> Callable:
    """Returns ``run(state, data, count) -> metrics``, the sums over the first `count` examples.

    `count` is traced: data sets of different sizes, padded to one size, share a program.
    """

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> Metrics:
        def body(i, total):
            batch = feed.evaluation_batch(data, i, count, sharding)
            return jax.tree.map(jnp.add, total, evaluate(state, batch, sharding))

        zero = {name: jnp.zeros(()) for name in evaluate.metrics}
        return lax.fori_loop(0, feed.evaluation_batches(count), body, zero)

    return run
