"""From a dataset to the two functions that the loop needs: advance and evaluate, compiled and warm."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from experiments.evidence.answers import Answers, AnswerStep, joined, whole_answers
from experiments.measure.timing import Compiled, compiled
from jaxcnn.data import as_arrays, fitted
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.data.source import Arrays, Shape, Split
from jaxcnn.data.streamed import EvaluationBatches, TrainBatches, stream
from jaxcnn.parallel import Jit
from jaxcnn.training import TrainState, TrainStep, many_train_steps, whole_evaluation
from jaxcnn.training.loop import Advance

RESIDENT_SHARE = 0.2  # of a device's free memory that a training set may take


@dataclass(frozen=True)
class Splits:
    """The three parts of a dataset."""

    train: Split
    validation: Split
    test: Split


@dataclass(frozen=True)
class Pipeline:
    """What `build` gives.

    Attributes:
      name: ``resident`` or ``streamed``.
      advance: see `jaxcnn.training.fit`.
      evaluate: ``evaluate(state, split)`` with ``validation`` or ``test``, summed metrics.
      answers: ``answers(state, split)``, the same with every example's answer; compiled at the first call.
      program: the compiled train program, and how long that took.
    """

    name: str
    advance: Advance
    evaluate: Callable[[TrainState, str], dict[str, Any]]
    answers: Callable[[TrainState, str], Answers]
    program: Compiled


def choose(asked: str, examples: int, shape: Shape, devices: Sequence[jax.Device]) -> tuple[str, str]:
    """Which pipeline, and why. Every device holds the whole set; simulated ones hold theirs in the same memory."""
    if asked != "auto":
        return asked, "as asked"
    size = examples * int(np.prod(shape))
    sharers = len(devices) if devices[0].platform == "cpu" else 1
    room = int(_free_memory(devices[0]) * RESIDENT_SHARE / sharers)
    fits = size <= room
    return (
        "resident" if fits else "streamed",
        f"{size / 1e6:,.1f} MB of images, {room / 1e6:,.0f} MB of the device's memory to spare for them",
    )


def _free_memory(device: jax.Device) -> int:
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return psutil.virtual_memory().available


def build(name: str, strategy: Jit, step: TrainStep, state: TrainState, splits: Splits, **sizes: Any) -> Pipeline:
    """Reads the data as far as the pipeline needs it and compiles every program.

    Args:
      name: ``resident`` or ``streamed``.
      strategy: places and compiles.
      step: the train step.
      state: placed by the strategy; read for its shapes alone.
      splits: the data.
      **sizes: `shape`, `batch_size`, `seed`, `workers`, `first_step`, `last_step`, see `_resident` and `_streamed`.
    """
    return {"resident": _resident, "streamed": _streamed}[name](strategy, step, state, splits, **sizes)


def _resident(strategy, step, state, splits: Splits, *, shape: Shape, batch_size: int, seed: int, **_) -> Pipeline:
    data = strategy.place_data(_tree(as_arrays(splits.train, shape)))
    counts = {"validation": len(splits.validation), "test": len(splits.test)}
    rows = max(counts.values())
    held_out = {name: strategy.place_data(_tree(_filled_up(as_arrays(getattr(splits, name), shape), rows))) for name in counts}
    feed = ResidentFeed(len(splits.train), batch_size, seed)
    train = strategy.compile(many_train_steps(step, feed), resident=True)
    program = compiled(train, state, data, np.int32(1))
    train = program.executable
    evaluation = strategy.compile_evaluation(whole_evaluation(step.evaluation, feed), resident=True)
    evaluation = compiled(evaluation, state, held_out["test"], np.int32(1)).executable
    answering = strategy.compile_evaluation(whole_answers(AnswerStep(step.evaluation), feed, rows), resident=True)

    def advance(state, step, count):
        state, metrics = train(state, data, np.int32(count))
        return state, {name: values[:count] for name, values in jax.device_get(metrics).items()}

    def evaluate(state, split):
        return evaluation(state, held_out[split], np.int32(counts[split]))

    def answers(state, split):
        return joined([answering(state, held_out[split], np.int32(counts[split]))], counts[split])

    return Pipeline("resident", advance, evaluate, answers, program)


def _streamed(
    strategy,
    step,
    state,
    splits: Splits,
    *,
    shape: Shape,
    batch_size: int,
    seed: int,
    workers: int,
    first_step: int,
    last_step: int,
) -> Pipeline:
    batches = TrainBatches(fitted(splits.train, shape), batch_size, seed)
    held_out = {name: EvaluationBatches(fitted(getattr(splits, name), shape), batch_size) for name in ("validation", "test")}
    program = compiled(strategy.compile(step), state, strategy.place_batch(batches[first_step]))
    train = program.executable
    evaluation = strategy.compile_evaluation(step.evaluation)
    evaluation = compiled(evaluation, state, strategy.place_batch(held_out["test"][0])).executable
    answering = strategy.compile_evaluation(AnswerStep(step.evaluation))
    placed = _ahead(strategy.place_batch, stream(batches, first_step, last_step, workers))
    first = list(itertools.islice(placed, 1))  # waits here for the workers to start, not in the first step
    placed = itertools.chain(first, placed)

    def advance(state, step, count):
        taken = []
        for batch in itertools.islice(placed, count):
            state, metrics = train(state, batch)
            taken.append(metrics)
        return state, jax.tree.map(lambda *values: np.stack(values), *jax.device_get(taken))

    def over(program, state, batches):
        return [program(state, batch) for batch in _ahead(strategy.place_batch, stream(batches, 0, len(batches), 0))]

    def evaluate(state, split):
        return jax.tree.map(lambda *values: jnp.sum(jnp.stack(values)), *over(evaluation, state, held_out[split]))

    def answers(state, split):
        return joined(over(answering, state, held_out[split]), len(getattr(splits, split)))

    return Pipeline("streamed", advance, evaluate, answers, program)


def _ahead(place: Callable, batches: Iterator[Any], depth: int = 2) -> Iterator[Any]:
    """Placed batches, `depth` of them on their way to the device before they are needed."""
    waiting: deque[Any] = deque()
    for batch in batches:
        waiting.append(place(batch))
        if len(waiting) > depth:
            yield waiting.popleft()
    yield from waiting


def _tree(arrays: Arrays) -> dict[str, np.ndarray]:
    return {"image": arrays.images, "label": arrays.labels}


def _filled_up(arrays: Arrays, rows: int) -> Arrays:
    """Zeros after the last example, so that sets of different sizes share a program; evaluation leaves them out."""
    more = rows - len(arrays)
    images = np.pad(arrays.images, [(0, more), (0, 0), (0, 0), (0, 0)])
    return Arrays(images, np.pad(arrays.labels, (0, more)))
