"""From which size of network on is the accelerator faster? The dropout MLP of system C9, its width doubled over and over.

The pixels are made up, as many images of MNIST's size as the preset has: time does not hang on what they show. An epoch is one
dispatch of the resident pipeline. Compiling and copying to the device are timed apart, and `experiments.analysis.crossover` weighs
records of two devices with them and without.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, with_strategy
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.timing import Timing, compiled, timed
from experiments.workloads import synthetic_step
from jaxcnn import models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.resident import ResidentFeed

COLUMNS = (
    "parameters", "training_time", "step_time", "compile_time", "copy_time", "setup_and_training_time", "flops_per_second",
    "mfu", "mfu_measured_peak",
)  # fmt: skip
WIDTHS = {"quick": [2**i for i in (5, 7, 9)], "full": [2**i for i in range(3, 14)]}
IMAGES = {"quick": 2_560, "full": 60_000}  # the latter as MNIST has
BUDGETS = {"quick": 0.2, "full": 2.0}  # seconds of sampling, each of training and of copying


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One a width; the model asked for is not heeded.

    Raises:
      InputError: as of `with_strategy`.
    """
    recipe = models.spec("mlp").recipe
    filled = {
        "batch_size": recipe.batch_size,
        "optimizer": recipe.optimizer,
        "learning_rate": recipe.learning_rate,
    }
    config = with_strategy(config.with_defaults(filled), backend)
    return [_case(config.replace(model=f"mlp:{width}")) for width in WIDTHS[config.preset]]


def _case(config: RunConfig) -> Case:
    names = ("model", "strategy", "precision", "batch_size", "optimizer", "learning_rate", "seed")
    settings = {name: getattr(config, name) for name in names} | {"images": IMAGES[config.preset]}
    return Case(
        config, settings, (config.model, config.strategy, config.precision, f"b{config.batch_size}")
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Times compiling, copying the images to the device, and an epoch."""
    config, budget = case.config, BUDGETS[case.config.preset]
    shape = models.spec("mlp").input_shape
    images = synthetic_step.noise_batch(case.settings["images"], shape, 10, config.seed)
    model = models.build(config.model, input_shape=shape, seed=config.seed)
    optimizer = training.optimizer(
        config.optimizer, config.learning_rate, "constant", steps=1, steps_per_epoch=1
    )
    state, step = training.create(
        model, optimizer, seed=config.seed, precision=config.precision, preprocess=make_preprocess()
    )
    strategy = parallel.strategy(config.strategy, context.backend.devices)
    feed = ResidentFeed(len(images["label"]), config.batch_size, config.seed)
    copying = timed(lambda: strategy.place_data(images), budget=budget)
    epoch = Epoch(strategy.place(state), strategy.place_data(images), feed.capacity)
    seconds = epoch.compile(strategy.compile(training.multi_step(step, feed), resident=True))
    running = timed(epoch, budget=budget)
    batch = {name: rows[: config.batch_size] for name, rows in images.items()}
    work = {
        "flops_per_step": model_flops(step, state, batch),
        "bytes_per_step": bytes_once(step, state, batch),
    }
    metrics = work | _times(running, feed.capacity) | {
        "images_per_second": feed.capacity * config.batch_size / running.median,
        "flops_per_second": feed.capacity * work["flops_per_step"] / running.median,
        "compile_time": seconds,
        "copy_time": copying.median,
        "setup_and_training_time": seconds + copying.median + running.median,
        "parameters": models.count_parameters(model),
    }  # fmt: skip
    samples = {"training_time": list(running.samples), "copy_time": list(copying.samples)}
    told = {
        "noise": running.noise.verdict,
        "copy_noise": copying.noise.verdict,
        "calls_per_sample": running.calls_per_sample,
    }
    told |= {
        "strategy_devices": len(strategy.devices),
        "compiler_options": strategy.options,
        "pipeline": "resident",
    }
    return CaseResult(
        metrics,
        samples | {"step_time": [t / feed.capacity for t in running.samples]},
        provenance=told,
    )


@dataclass
class Epoch:
    """An epoch as one dispatch, with a state that goes on from call to call.

    Attributes:
      state, images: placed by a strategy.
      steps: of an epoch.
      program: compiled; donates the state.
    """

    state: training.TrainState
    images: dict[str, jax.Array]
    steps: int
    program: jax.stages.Compiled | None = None

    def compile(self, function: Callable) -> float:
        """Compiles it, though it may have been before; returns the seconds."""
        with _no_cache():
            done = compiled(function, self.state, self.images, np.int32(self.steps))
        self.program = done.executable
        return done.lower_time + done.compile_time

    def __call__(self) -> dict[str, jax.Array]:
        """One epoch; returns the metrics of its steps."""
        self.state, metrics = self.program(self.state, self.images, np.int32(self.steps))
        return metrics


@contextlib.contextmanager
def _no_cache() -> Iterator[None]:
    """Without JAX's compilation cache: what it takes to compile must not hang on who was here before."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # which asks only once whether it is enabled
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def _times(timing: Timing, steps: int) -> dict[str, float]:
    low, high = timing.interval
    found = {
        "step_time": timing.median,
        "step_time_low": low,
        "step_time_high": high,
    }
    return {name: seconds / steps for name, seconds in found.items()} | {
        "training_time": timing.median
    }
