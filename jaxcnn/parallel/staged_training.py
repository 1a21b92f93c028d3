"""The train step of a network in stages, as each device runs it; see `schedule`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.parallel.packing import Buffers
from jaxcnn.parallel.schedule import (
    Wire,
    backward_ticks,
    forward_ticks,
    microbatch,
    row,
    set_row,
    to_next,
    to_previous,
)
from jaxcnn.parallel.stage_functions import StageFunctions
from jaxcnn.parallel.staged_network import AXIS, StagedNetwork
from jaxcnn.training.microbatches import split
from jaxcnn.training.objective import Batch, Metrics, mask_of
from jaxcnn.training.precision import all_finite
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep


def train(
    network: StagedNetwork, step: TrainStep, state: TrainState, batch: Batch
) -> tuple[TrainState, Metrics]:
    """Takes one step.

    Args:
      network: the stages.
      step: of the whole network.
      state: of the device's stage, packed.
      batch: the whole batch.

    Returns:
      The next state of the stage, packed, and the metrics of `TrainStep`.
    """
    parts = split(
        (batch, jnp.arange(len(batch["image"]))), network.microbatches, step.rows_together
    )
    images, part = jax.eval_shape(step.inputs, state, *row(parts, 0))
    *boundaries, outputs = network.boundaries(step.network, images, train=True)
    shapes = jax.eval_shape(step.training_objective, outputs, part)
    examples = jnp.sum(mask_of(batch))
    stages = StageFunctions(network, step, state, parts, examples, Wire(tuple(boundaries)), shapes)
    scale = step.loss_scale(state)
    inputs, statistics, model_state = _forward(stages)
    grads, metrics, model_state = _backward(stages, inputs, statistics, model_state)
    metrics = lax.psum(metrics, AXIS)
    if step.penalty:
        penalty, penalty_grads = _of_this_stage(stages, stages.penalty)
        metrics["penalty"] = lax.psum(penalty, AXIS) * metrics["count"]
        grads = jax.tree.map(lambda g, p: g + scale * p, grads, penalty_grads)
    grads = jax.tree.map(lambda g: g / scale, grads)
    squares = sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))
    update = functools.partial(
        stages.update,
        grads=grads,
        model_state=model_state,
        norm=jnp.sqrt(lax.psum(squares, AXIS)),
        finite=lax.pmin(all_finite(grads).astype(jnp.int32), AXIS) > 0,
    )
    return _of_this_stage(stages, update), metrics


def _forward(stages: StageFunctions) -> tuple[Array, Buffers, Buffers]:
    """All forward ticks.

    Returns:
      The inputs of the device's stage for each microbatch, ``[M, n]``; its `model_state` before
      each, without keys, ``[M, n]``; and the next `model_state`.
    """
    count, last, stage = stages.network.microbatches, stages.network.last, lax.axis_index(AXIS)
    first = stages.state.model_state

    def idle(x, model_state, part):
        return jnp.zeros_like(x), model_state

    branches = [idle, *(functools.partial(stages.forward, number) for number in range(last))]

    def tick(number, carry):
        inputs, statistics, model_state = carry
        m, active = microbatch(number, stage, count)
        active &= stage < last
        statistics = {
            name: set_row(rows, m, model_state[name], active) for name, rows in statistics.items()
        }
        outputs, model_state = lax.switch(
            jnp.where(active, stage + 1, 0), branches, inputs[m], model_state, row(stages.parts, m)
        )
        arrived, valid = microbatch(number, stage - 1, count)
        inputs = set_row(inputs, arrived, to_next(outputs, last + 1), valid & (stage > 0))
        return inputs, statistics, model_state

    statistics = {
        name: jnp.zeros((count, *values.shape), values.dtype)
        for name, values in first.items()
        if not jnp.issubdtype(values.dtype, jax.dtypes.prng_key)
    }
    carry = stages.wire.empty(count), statistics, first
    return lax.fori_loop(0, forward_ticks(last + 1, count), tick, carry)


def _backward(
    stages: StageFunctions, inputs: Array, statistics: Buffers, model_state: Buffers
) -> tuple[Buffers, Metrics, Buffers]:
    """All backward ticks.

    Returns:
      The gradients of the device's stage and the metrics, summed over microbatches; the metrics
      are zero but on the last device. Then the next `model_state`.
    """
    count, last, stage = stages.network.microbatches, stages.network.last, lax.axis_index(AXIS)

    def idle(sums, model_state, x, saved, part, cotangent):
        return sums, model_state, jnp.zeros_like(cotangent)

    def branch(number):
        def run(sums, model_state, x, saved, part, cotangent):
            is_last = number == last
            before = model_state if is_last else model_state | saved
            dx, terms, after = stages.backward(number, x, before, part, cotangent)
            return jax.tree.map(jnp.add, sums, terms), after if is_last else model_state, dx

        return run

    branches = [idle, *map(branch, range(last + 1))]

    def tick(number, carry):
        sums, model_state, cotangent = carry
        m, active = microbatch(number, last - stage, count)
        sums, model_state, dx = lax.switch(
            jnp.where(active, stage + 1, 0),
            branches,
            sums,
            model_state,
            inputs[m],
            row(statistics, m),
            row(stages.parts, m),
            cotangent,
        )
        return sums, model_state, to_previous(dx, last + 1)

    sums = jax.tree.map(jnp.zeros_like, stages.state.params), stages.zero_metrics()
    carry = sums, model_state, stages.wire.empty()[0]
    sums, model_state, _ = lax.fori_loop(0, backward_ticks(last + 1, count), tick, carry)
    return *sums, model_state


def _of_this_stage(stages: StageFunctions, function: Callable[[int], Any]) -> Any:
    """The result of a function of the number of the stage, for the stage of this device."""
    count = len(stages.network.stages)
    branches = [functools.partial(function, stage) for stage in range(count)]
    return lax.switch(lax.axis_index(AXIS), branches)
