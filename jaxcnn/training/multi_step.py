"""Loops inside one compiled program, over data that is already on the device."""

import functools
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

    def __call__(self, state: TrainState, batch: Batch, sharding: BatchSharding) -> Metrics:
        """Masked sums over the global batch."""
        ...


def multi_step(step: TrainStep, feed: TrainFeed) -> Callable:
    """Returns ``run(state, data, count) -> (state, metrics)``, which takes `count` train steps.

    All steps must belong to one epoch. `count` is traced, so that a dispatch of any length is the
    same program with the same rounding. Each metric of the step is ``f32[feed.capacity]``: an entry
    per step, zero after the first `count`.
    """

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> tuple[TrainState, Metrics]:
        order = feed.order(data, state.step)

        @functools.partial(jax.jit, inline=True)  # traced once, for the shapes and for the loop
        def one_step(state):
            return step(state, feed.batch(data, order, state.step, sharding), sharding)

        def body(i, carry):
            state, totals = carry
            state, metrics = one_step(state)
            return state, jax.tree.map(lambda rows, value: rows.at[i].set(value), totals, metrics)

        _, shapes = jax.eval_shape(one_step, state)
        zeros = jax.tree.map(lambda x: jnp.zeros((feed.capacity, *x.shape), x.dtype), shapes)
        return lax.fori_loop(0, count, body, (state, zeros))

    return run


def evaluate_dataset(evaluate: Evaluation, feed: EvaluationFeed) -> Callable:
    """Returns ``run(state, data, count) -> metrics``, the sums over the first `count` examples.

    `count` is traced: data sets of different sizes, padded to one size, share a program.
    """

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> Metrics:
        @functools.partial(jax.jit, inline=True)  # traced once, for the shapes and for the loop
        def one_batch(i):
            return evaluate(state, feed.evaluation_batch(data, i, count, sharding), sharding)

        def body(i, total):
            return jax.tree.map(jnp.add, total, one_batch(i))

        shapes = jax.eval_shape(one_batch, jax.ShapeDtypeStruct((), jnp.int32))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return lax.fori_loop(0, feed.evaluation_batches(count), body, zero)

    return run
