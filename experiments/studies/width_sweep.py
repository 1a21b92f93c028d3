"""From which network size on an accelerator is faster: an MLP with dropout, doubled in width.

The question and the network are those of Frigaard's lecture (ITMAL, lesson 09, 2021). The images
are random, as many of MNIST's size as the preset says: the time does not depend on their content.
An epoch is one dispatch of the resident pipeline. Compiling and copying to the device are timed
separately; `experiments.analysis.crossover` compares the records of two devices with and without
them.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from flax import nnx
from jax.experimental.compilation_cache import compilation_cache

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, with_strategy
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.timing import Timing, compile_program, time_call
from experiments.workloads import synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.errors import InputError

COLUMNS = (
    "parameters",
    "training_time",
    "step_time",
    "compile_time",
    "copy_time",
    "setup_and_training_time",
    "flops_per_second",
    "mfu",
    "mfu_measured_peak",
)
WIDTHS = {"quick": [2**i for i in (5, 7, 9)], "full": [2**i for i in range(3, 14)]}
IMAGES = {"quick": 2_560, "full": 60_000}  # the latter as in MNIST
NUM_CLASSES = 10
BUDGETS = {"quick": 0.2, "full": 2.0}  # seconds of sampling, for training and for copying each


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each width; `--model` is ignored.

    Raises:
      InputError: a batch larger than an epoch; else as in `with_strategy`.
    """
    recipe = models.spec("mlp").recipe
    defaults = {
        "batch_size": recipe.batch_size,
        "optimizer": recipe.optimizer,
        "learning_rate": recipe.learning_rate,
    }
    config = with_strategy(config.with_defaults(defaults), backend)
    images = IMAGES[config.preset]
    if config.batch_size > images:
        raise InputError(
            f"--batch-size={config.batch_size}: an epoch of --preset={config.preset} has {images} "
            "images, choose no more"
        )
    return [_case(config.replace(model=f"mlp:{width}")) for width in WIDTHS[config.preset]]


def _case(config: RunConfig) -> Case:
    names = ("model", "strategy", "precision", "batch_size", "optimizer", "learning_rate", "seed")
    settings = {name: getattr(config, name) for name in names} | {"images": IMAGES[config.preset]}
    settings |= {"mesh": config.mesh} if config.mesh else {}
    parts = (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    return Case(config, settings, parts)


def measure(case: Case, context: Context) -> CaseResult:
    """Times compiling, copying the images to the device, and an epoch."""
    config, budget = case.config, BUDGETS[case.config.preset]
    shape = models.spec("mlp").input_shape
    data = synthetic_step.noise_batch(case.settings["images"], shape, NUM_CLASSES, config.seed)
    model, state, step = _create(config, shape)
    batch = {name: rows[: config.batch_size] for name, rows in data.items()}
    strategy = parallel.strategy(config.strategy, context.backend.devices, mesh=config.mesh)
    strategy = strategy.for_step(step, state, batch)
    feed = ResidentFeed(len(data["label"]), config.batch_size)
    data["seed"] = np.asarray(config.seed, np.uint32)
    copy = time_call(lambda: strategy.place_data(data), budget=budget)
    steps = strategy.place_data(np.int32(feed.capacity))
    epoch = Epoch(strategy.place(state), strategy.place_data(data), steps)
    run_steps = strategy.compile(training.multi_step(step, feed), resident=True)
    compile_seconds = epoch.compile(run_steps)
    run = time_call(epoch, budget=budget)
    flops = model_flops(step, state, batch)
    metrics = _step_metrics(run, feed.capacity, config.batch_size, flops) | {
        "bytes_per_step": compulsory_bytes(step, state, batch),
        "training_time": run.median,
        "compile_time": compile_seconds,
        "copy_time": copy.median,
        "setup_and_training_time": compile_seconds + copy.median + run.median,
        "parameters": models.count_parameters(model),
    }
    return CaseResult(
        metrics,
        {
            "training_time": list(run.samples),
            "copy_time": list(copy.samples),
            "step_time": [seconds / feed.capacity for seconds in run.samples],
        },
        provenance={
            "noise": run.noise.verdict,
            "copy_noise": copy.noise.verdict,
            "calls_per_sample": run.calls_per_sample,
            "strategy_devices": len(strategy.devices),
            "compiler_options": strategy.options,
            "pipeline": "resident",
        },
    )


def _create(
    config: RunConfig, shape: tuple[int, int, int]
) -> tuple[nnx.Module, training.TrainState, training.TrainStep]:
    model = models.build(config.model, input_shape=shape, seed=config.seed)
    optimizer = training.optimizer(
        config.optimizer, config.learning_rate, "constant", steps=1, steps_per_epoch=1
    )
    state, step = training.create(
        model, optimizer, seed=config.seed, precision=config.precision, preprocess=make_preprocess()
    )
    return model, state, step


@dataclass
class Epoch:
    """An epoch as one dispatch, with a state that advances from call to call.

    Attributes:
      state, data, steps: placed by a strategy; the number of steps of an epoch is an ``i32[]``.
      program: compiled; donates the state. None before `compile`.
    """

    state: training.TrainState
    data: dict[str, jax.Array]
    steps: jax.Array
    program: jax.stages.Compiled | None = None

    def compile(self, function: Callable) -> float:
        """Compiles ``function(state, data, steps)`` without JAX's cache; returns the seconds."""
        with _compilation_cache_disabled():
            compiled = compile_program(function, self.state, self.data, self.steps)
        self.program = compiled.executable
        return compiled.lower_time + compiled.compile_time

    def __call__(self) -> dict[str, jax.Array]:
        """Trains for one epoch; returns the metrics of its steps."""
        self.state, metrics = self.program(self.state, self.data, self.steps)
        return metrics


@contextlib.contextmanager
def _compilation_cache_disabled() -> Iterator[None]:
    """Disables JAX's compilation cache, so that compile times do not depend on earlier runs."""
    enabled = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]  # dynamic
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX checks only once whether the cache is enabled
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
        compilation_cache.reset_cache()


def _step_metrics(epoch: Timing, steps: int, batch_size: int, flops: int) -> dict[str, float]:
    """Metrics of a step, from the timing of an epoch of this many steps."""
    low, high = epoch.interval
    return {
        "flops_per_step": flops,
        "step_time": epoch.median / steps,
        "step_time_low": low / steps,
        "step_time_high": high / steps,
        "images_per_second": steps * batch_size / epoch.median,
        "flops_per_second": steps * flops / epoch.median,
    }
