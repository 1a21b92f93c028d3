"""Many steps in one dispatch, over data that is already on the device."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import WHOLE, EvalStep, Spread, TrainStep


class TrainFeed(Protocol):
    """Makes training batches from data on the device, inside a compiled program."""

    capacity: int

    def order(self, data: Any, step: Array) -> Array:
        """What all steps of one dispatch share: the order of the epoch that `step` falls into."""

    def batch(self, data: Any, order: Array, step: Array, spread: Spread) -> Batch:
        """The training batch of a step."""


class EvaluationFeed(Protocol):
    """Makes batches that hold each example once, of data on the device, inside a compiled program."""

    def evaluation_batches(self, count: Array) -> Array:
        """How many batches `count` examples make, the last one filled up."""

    def evaluation_batch(self, data: Any, index: Array, count: Array, spread: Spread) -> Batch:
        """One of them; each of the first `count` examples is in one, and what fills up is masked."""


def many_train_steps(step: TrainStep, feed: TrainFeed):
    """``run(state, data, count) -> (state, metrics)``: `count` steps, all of one epoch.

    `count` is a traced number, so that every length of dispatch is the same program with the same rounding. The metrics
    are arrays ``f32[feed.capacity]``, an entry a step, zero after the first `count`.
    """

    def run(state: TrainState, data: Any, count: Array, spread: Spread = WHOLE) -> tuple[TrainState, Metrics]:
        order = feed.order(data, state.step)

        def body(i, carry):
            state, filled = carry
            state, metrics = step(state, feed.batch(data, order, state.step, spread), spread)
            return state, {name: filled[name].at[i].set(value) for name, value in metrics.items()}

        empty = {name: jnp.zeros(feed.capacity) for name in step.metrics}
        return lax.fori_loop(0, count, body, (state, empty))

    return run


def whole_evaluation(evaluate: EvalStep, feed: EvaluationFeed):
    """``run(state, data, count) -> metrics``: the sums over the first `count` examples, each once.

    `count` is a traced number: sets of different sizes, filled up to one size, share a program.
    """

    def run(state: TrainState, data: Any, count: Array, spread: Spread = WHOLE) -> Metrics:
        def body(i, total):
            batch = feed.evaluation_batch(data, i, count, spread)
            return jax.tree.map(jnp.add, total, evaluate(state, batch, spread))

        zero = {name: jnp.zeros(()) for name in evaluate.metrics}
        return lax.fori_loop(0, feed.evaluation_batches(count), body, zero)

    return run
