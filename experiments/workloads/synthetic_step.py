"""A train step on synthetic images that stay on the devices, for studies of speed alone."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.memory import memory_plan
from experiments.measure.timing import Compiled, Timing, compile_program, time_call
from experiments.workloads import network
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known

BATCH_SIZES = {"quick": 64, "full": 256}
SIMULATED = (
    "the devices are simulated on one processor: this shows what they compute, and no speeds"
)


@dataclass
class StepProgram:
    """A compiled train step, with a state that advances from call to call.

    Attributes:
      state, batch: placed by the strategy.
      program: the compiled ``(state, batch) -> (state, metrics)``, which donates the state.
      strategy: that placed and compiled it.
      flops, bytes: of one step, all devices together.
      batch_size: images per step.
      parameters: the number of trainable parameters.
    """

    state: training.TrainState
    batch: dict[str, jax.Array]
    program: Compiled
    strategy: parallel.Strategy
    flops: int
    bytes: int
    batch_size: int
    parameters: int

    def __call__(self) -> dict[str, jax.Array]:
        """Takes one step; returns its summed metrics."""
        program = self.strategy.dispatchable(self.program.executable)
        self.state, metrics = program(self.state, self.batch)
        return metrics


def fill_defaults(config: RunConfig) -> RunConfig:
    """Fills in the options of a step on synthetic images.

    The optimizer is momentum SGD even if the network's recipe has Adam: Adam makes a full-sized
    update from a gradient that is zero except for rounding, and these studies compare results.

    Raises:
      InputError: an unknown model, optimizer or precision.
    """
    defaults = {
        "image_size": network.image_size(config),
        "batch_size": BATCH_SIZES[config.preset],
        "optimizer": "momentum",
        "learning_rate": 0.01,
    }
    config = config.with_defaults(defaults)
    require_known("optimizer", config.optimizer, training.OPTIMIZERS)
    require_known("precision", config.precision, training.PRECISIONS)
    return config


def check(config: RunConfig, channels: int | None = None) -> None:
    """Checks that the network takes images of the requested size, without drawing weights.

    Args:
      config: defaults filled in.
      channels: of the images; as `network.channels` says if None.

    Raises:
      InputError: it does not.
    """
    published = models.spec(config.model).input_shape
    if published is None or config.image_size != max(published[:2]):
        shape = (config.image_size, config.image_size, channels or network.channels(config))
        classes = config.num_classes or network.NUM_CLASSES
        nnx.eval_shape(lambda: models.build(config.model, num_classes=classes, input_shape=shape))


def settings(config: RunConfig, point: str) -> dict[str, str | int | float]:
    """The settings of a case: the point of the study, and the options that `build` uses."""
    names = (
        "model",
        "strategy",
        "precision",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "seed",
    )
    options = {name: getattr(config, name) for name in names}
    return {"point": point} | options | division(config) | network.noise_settings(config)


def division(config: RunConfig) -> dict[str, Any]:
    """Settings that say how a batch is divided, as far as they are not the default ones.

    >>> division(RunConfig(mesh="2x4", microbatches=1))
    {'mesh': '2x4'}
    """
    settings = {"mesh": config.mesh, "microbatches": config.microbatches}
    return {name: value for name, value in settings.items() if value not in (None, 1)}


def build(config: RunConfig, backend: Backend) -> StepProgram:
    """Builds, places and compiles the step of a configuration on images of noise.

    Args:
      config: defaults filled in; of its options `model`, `image_size`, `num_classes`, `batch_size`,
        `precision`, `strategy`, `mesh`, `optimizer`, `learning_rate`, `microbatches` and `seed` are
        used.
      backend: the devices.
    """
    channels = network.channels(config)
    num_classes = config.num_classes or network.NUM_CLASSES
    classes = tuple(map(str, range(num_classes)))
    preprocessing = Preprocessing(config.image_size, config.image_size, channels, classes)
    shape = preprocessing.network_shape
    optimizer = training.optimizer(
        config.optimizer, config.learning_rate, "constant", steps=1, steps_per_epoch=1
    )
    network.check_outputs(config, num_classes, shape)
    strategy = parallel.strategy(config.strategy, backend.devices, mesh=config.mesh)
    state, step = strategy.create(
        lambda: training.create(
            network.build_network(config, num_classes, shape),
            optimizer,
            seed=config.seed,
            precision=config.precision,
            preprocess=preprocessing.make_preprocess(),
            microbatches=config.microbatches or 1,
        )
    )
    batch = noise_batch(config.batch_size, shape, num_classes, config.seed)
    strategy = strategy.for_step(step, state, batch)
    placed_state, placed_batch = strategy.place(state), strategy.place_batch(batch)
    return StepProgram(
        state=placed_state,
        batch=placed_batch,
        program=compile_program(strategy.compile(step), placed_state, placed_batch),
        strategy=strategy,
        flops=model_flops(step, state, batch),
        bytes=compulsory_bytes(step, state, batch),
        batch_size=config.batch_size,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
    )


def noise_batch(
    rows: int, shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Random images ``u8[rows, *shape]`` and labels ``i32[rows]``."""
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (rows, *shape), np.uint8),
        "label": rng.integers(0, num_classes, rows, np.int32),
    }


def time_step(step: StepProgram, *, budget: float) -> tuple[dict[str, float], Timing]:
    """Times the step.

    Args:
      step: as `build` returned it.
      budget: seconds of sampling.

    Returns:
      Metrics by the names of `METRICS`, and the timing with its samples.
    """
    timing = time_call(step, budget=budget)
    low, high = timing.interval
    plan = memory_plan(step.program.executable)
    metrics = {
        "flops_per_step": step.flops,
        "bytes_per_step": step.bytes,
        "parameters": step.parameters,
        "step_time": timing.median,
        "step_time_low": low,
        "step_time_high": high,
        "call_latency": timing.latency,
        "images_per_second": step.batch_size / timing.median,
        "flops_per_second": step.flops / timing.median,
        "first_step_time": timing.first,
        **step.program.metrics,
    }
    if plan:
        metrics["memory_planned"] = plan.total
    return metrics, timing
