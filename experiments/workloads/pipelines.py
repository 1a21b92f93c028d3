"""From a data set to the compiled functions that the training loop calls.

The resident pipeline keeps the data on the device and gathers batches inside the compiled program;
the streamed one feeds batches from worker processes. Both deliver the same bytes in the same order.

A transfer guard watches both while they run: every copy between host and device is one that this
file asks for, and an array that a step would fetch unnoticed is an error.
"""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from experiments.measure.timing import Compiled, compile_program
from experiments.workloads.input_wait import InputWait
from experiments.workloads.predictions import Predictions, PredictionStep, join, predict_dataset
from experiments.workloads.reading import read_in_parts
from experiments.workloads.setup import TrainingSetup
from jaxcnn.data import FittedSplit
from jaxcnn.data.augment import ALTERNATING_FLIP
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.data.source import ArraySplit
from jaxcnn.data.streamed import EvaluationBatches, TrainBatches, stream
from jaxcnn.parallel import ResidentTraining
from jaxcnn.training import TrainState, evaluate_dataset, multi_step
from jaxcnn.training.loop import RunSteps

RESIDENT_SHARE = 0.2  # of a device's free memory that a resident training set may take
_PREFETCHED = 2  # batches placed ahead of the one that is needed


@dataclass(frozen=True)
class Pipeline:
    """The compiled functions of a training run.

    Attributes:
      name: ``resident`` or ``streamed``.
      run_steps: see `jaxcnn.training.fit`.
      evaluate: ``evaluate(state, split)`` returns summed metrics of ``validation`` or ``test``.
      predict: ``predict(state, split)`` returns the prediction for every example as well; compiled
        at the first call.
      program: the compiled train program, and how long compiling took.
      input_wait: the time for which the device waited for batches; None if they lie on it.
    """

    name: str
    run_steps: RunSteps
    evaluate: Callable[[TrainState, str], dict[str, Any]]
    predict: Callable[[TrainState, str], Predictions]
    program: Compiled
    input_wait: InputWait | None = None


def choose(setup: TrainingSetup, requested: str = "") -> tuple[str, str]:
    """The pipeline to use and the reason.

    Every device holds the whole set; simulated devices share one memory.

    Args:
      setup: the training run.
      requested: ``resident``, ``streamed`` or ``auto``; the option's value if empty.
    """
    requested = requested or setup.config.pipeline
    if requested != "auto":
        return requested, "as requested"
    devices = setup.strategy.devices
    first = setup.strategy.local_devices[0]
    size = len(setup.splits.train) * int(np.prod(setup.preprocessing.stored_shape))
    copies = len(devices) if devices[0].platform == "cpu" else 1
    limit = int(_free_memory(first) * RESIDENT_SHARE / copies)
    return (
        "resident" if size <= limit else "streamed",
        f"{size / 1e6:,.1f} MB of images, up to {limit / 1e6:,.0f} MB of device memory for them",
    )


def _free_memory(device: jax.Device) -> int:
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return psutil.virtual_memory().available


def build(
    setup: TrainingSetup,
    state: TrainState,
    *,
    name: str | None = None,
    first_step: int = 0,
    last_step: int | None = None,
) -> Pipeline:
    """Reads the data as far as the pipeline needs it and compiles the programs.

    Args:
      setup: the training run.
      state: placed by the strategy; only its shapes are used.
      name: ``resident`` or ``streamed``; as `choose` decides if not given.
      first_step, last_step: the steps that batches are streamed for; by default all steps.
    """
    if (name or choose(setup)[0]) == "resident":
        return _resident(setup, state)
    return _streamed(setup, state, first_step, last_step or setup.fit_config.steps)


def _resident(setup: TrainingSetup, state: TrainState) -> Pipeline:
    strategy, step, config = setup.strategy, setup.step, setup.config
    shape = setup.preprocessing.stored_shape
    place = strategy.place_data
    seed = {"seed": np.uint32(config.seed)}
    data = place(_tree(read_in_parts(setup.splits.train, shape)) | seed)
    counts = {"validation": len(setup.splits.validation), "test": len(setup.splits.test)}
    rows = max(counts.values())
    held_out = {
        split: place(_tree(_pad(read_in_parts(getattr(setup.splits, split), shape), rows)))
        for split in counts
    }
    flips = ALTERNATING_FLIP in config.augmentations
    feed = ResidentFeed(len(setup.splits.train), config.batch_size, flips)
    one = place(np.int32(1))
    program = compile_program(
        strategy.compile(multi_step(step, feed), resident=True), state, data, one
    )
    evaluation_program = compile_program(
        strategy.compile_evaluation(evaluate_dataset(step.evaluation, feed), resident=True),
        state,
        held_out["test"],
        one,
    )
    loop = ResidentTraining(
        strategy,
        step,
        feed,
        data,
        strategy.dispatchable(program.executable),
        strategy.dispatchable(evaluation_program.executable),
    )
    prediction = strategy.compile_evaluation(
        predict_dataset(PredictionStep(step.evaluation), feed, rows), resident=True
    )

    def evaluate(state, split):
        return loop.evaluate(state, held_out[split], counts[split])

    def predict(state, split):
        rows = prediction(state, held_out[split], place(np.int32(counts[split])))
        return join([rows], counts[split])

    return Pipeline("resident", loop.run_steps, evaluate, predict, program)


def _streamed(setup: TrainingSetup, state: TrainState, first_step: int, last_step: int) -> Pipeline:
    strategy, step, config = setup.strategy, setup.step, setup.config
    shape = setup.preprocessing.stored_shape
    flips = ALTERNATING_FLIP in config.augmentations
    train_split = FittedSplit(setup.splits.train, shape)
    local_rows = strategy.local_rows(config.batch_size)
    batches = TrainBatches(train_split, config.batch_size, config.seed, flips, local_rows)
    held_out = {
        split: EvaluationBatches(
            FittedSplit(getattr(setup.splits, split), shape), config.batch_size, local_rows
        )
        for split in ("validation", "test")
    }
    place = functools.partial(strategy.place_rows, count=config.batch_size)
    program = compile_program(strategy.compile(step), state, place(batches[first_step]))
    train = strategy.dispatchable(program.executable)
    evaluation_program = compile_program(
        strategy.compile_evaluation(step.evaluation), state, place(held_out["test"][0])
    )
    evaluation = strategy.dispatchable(evaluation_program.executable)
    prediction = strategy.compile_evaluation(PredictionStep(step.evaluation))
    placed = _prefetch(place, stream(batches, first_step, last_step, config.workers))
    first = list(itertools.islice(placed, 1))  # the workers start here, not in the first step
    placed = itertools.chain(first, placed)
    input_wait = InputWait()

    @jax.transfer_guard("disallow")
    def run_steps(state, step, count):
        history: list[dict[str, jax.Array]] = []
        for _ in range(count):
            last = next(iter(history[-1].values())) if history else None
            state, metrics = train(state, input_wait.next(placed, last))
            history.append(metrics)
        return state, jax.tree.map(lambda *values: np.stack(values), *jax.device_get(history))

    def over(program, state, batches):
        placed = _prefetch(place, stream(batches, 0, len(batches), 0))
        return [program(state, batch) for batch in placed]

    @jax.transfer_guard("disallow")
    def evaluate(state, split):
        parts = over(evaluation, state, held_out[split])
        return jax.tree.map(lambda *values: jnp.sum(jnp.stack(values)), *parts)

    def predict(state, split):
        return join(over(prediction, state, held_out[split]), len(getattr(setup.splits, split)))

    return Pipeline("streamed", run_steps, evaluate, predict, program, input_wait)


def _prefetch(place: Callable, batches: Iterator[Any]) -> Iterator[Any]:
    """Places batches, `_PREFETCHED` of them ahead of the one that is needed."""
    waiting: deque[Any] = deque()
    for batch in batches:
        waiting.append(place(batch))
        if len(waiting) > _PREFETCHED:
            yield waiting.popleft()
    yield from waiting


def _tree(arrays: ArraySplit) -> dict[str, np.ndarray]:
    return {"image": arrays.images, "label": arrays.labels}


def _pad(arrays: ArraySplit, rows: int) -> ArraySplit:
    """Pads with zeros, so that sets of different sizes share a program; evaluation masks them."""
    missing = rows - len(arrays)
    images = np.pad(arrays.images, [(0, missing), (0, 0), (0, 0), (0, 0)])
    return ArraySplit(images, np.pad(arrays.labels, (0, missing)))
