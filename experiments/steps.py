"""A train step on made-up images that lie on the devices: what studies time that ask about speed alone."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.inputs import Inputs
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.memory import planned
from experiments.measure.timing import Timing, compiled, timed
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend


@dataclass
class StepProgram:
    """A compiled train step with a state that goes on from call to call.

    Attributes:
      state, batch: placed by the strategy.
      executable: ``(state, batch) -> (state, metrics)``; donates the state.
      strategy: that placed and compiled it.
      lower_time, compile_time: seconds.
      compile_metrics: the same as `METRICS` has them.
      flops, bytes: of one step, all devices together.
      batch_size: images a step.
      parameters: trainable numbers.
    """

    state: training.TrainState
    batch: dict[str, jax.Array]
    executable: jax.stages.Compiled
    strategy: parallel.Jit
    lower_time: float
    compile_time: float
    compile_metrics: dict[str, float]
    flops: int
    bytes: int
    batch_size: int
    parameters: int

    def __call__(self) -> dict[str, jax.Array]:
        """One step; returns its summed metrics."""
        self.state, metrics = self.executable(self.state, self.batch)
        return metrics


def build(config: RunConfig, backend: Backend, *, num_classes: int = 10) -> StepProgram:
    """Builds, places and compiles the step of a configuration whose defaults are filled in.

    The images are noise: `image_size`, `batch_size`, `model`, `precision`, `strategy`, `optimizer` and `learning_rate` count.
    """
    channels = models.spec(config.model).input_shape[2]
    inputs = Inputs(config.image_size, config.image_size, channels, tuple(map(str, range(num_classes))))
    model = models.build(config.model, num_classes=num_classes, input_shape=inputs.network_shape, seed=config.seed)
    optimizer = training.optimizer(config.optimizer, config.learning_rate, "constant", steps=1, steps_per_epoch=1)
    state, step = training.create(model, optimizer, seed=config.seed, precision=config.precision, prepare=inputs.prepare())
    strategy = parallel.strategy(config.strategy, backend.devices)
    batch = noise_batch(config.batch_size, inputs.network_shape, num_classes, config.seed)
    placed, spread = strategy.place(state), strategy.place_batch(batch)
    program = compiled(strategy.compile(step), placed, spread)
    return StepProgram(
        placed, spread, program.executable, strategy, program.lower_time, program.compile_time, program.metrics,
        model_flops(step, state, batch), bytes_once(step, state, batch), config.batch_size, models.count_parameters(model),
    )  # fmt: skip


def noise_batch(rows: int, shape: tuple[int, int, int], num_classes: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Images ``u8[rows, *shape]`` and labels ``i32[rows]``, drawn at random."""
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (rows, *shape), np.uint8),
        "label": rng.integers(0, num_classes, rows, np.int32),
    }


def time_step(program: StepProgram, *, budget: float) -> tuple[dict[str, float], Timing]:
    """Times the step: metrics by the names of `METRICS`, and the timing with its samples."""
    timing = timed(program, budget=budget)
    low, high = timing.interval
    return _facts(program) | {
        "step_time": timing.median,
        "step_time_low": low,
        "step_time_high": high,
        "images_per_second": program.batch_size / timing.median,
        "flops_per_second": program.flops / timing.median,
        "first_step_time": timing.first,
    }, timing


def _facts(program: StepProgram) -> dict[str, Any]:
    plan = planned(program.executable)
    return {
        "flops_per_step": program.flops,
        "bytes_per_step": program.bytes,
        **program.compile_metrics,
        "parameters": program.parameters,
        **({"memory_planned": plan.total} if plan else {}),
    }
