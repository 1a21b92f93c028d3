"""Overhead of the training loop, compared with a bare compiled step in a Python loop."""

import itertools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.study import Case, CaseResult, Context
from experiments.workloads import pipelines
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import training
from jaxcnn.data.source import FittedSplit
from jaxcnn.data.streamed import TrainBatches
from jaxcnn.training import TrainState

ROUNDS = 15
COLUMNS = ("step_time", "bare_step_time", "loop_over_bare")


def measure(case: Case, context: Context) -> CaseResult:
    """Times epochs of both loops in turn; a round is one epoch of each.

    The bare loop calls the compiled step on batches that already lie on the device, and waits once,
    at the end. Our loop is `training.fit` with the resident pipeline, which also orders and gathers
    the batches, normalizes them, sums metrics and checks the loss.
    """
    setup = build_setup(case.config, context.backend)
    times = _time_epochs(setup, {"bare": _bare_loop(setup), "ours": _our_loop(setup)})
    ratios = np.array(times["ours"]) / np.array(times["bare"])
    return CaseResult(
        metrics={
            "step_time": float(np.median(times["ours"])),
            "bare_step_time": float(np.median(times["bare"])),
            "loop_over_bare": float(np.median(ratios)),
        },
        samples={"step_time": times["ours"], "bare_step_time": times["bare"]},
        provenance={
            "strategy_devices": len(setup.strategy.devices),
            "compiler_options": setup.strategy.options,
            "pipeline": "resident",
            "steps_per_round": setup.fit_config.steps_per_epoch,
        },
    )


def _bare_loop(setup: TrainingSetup) -> Callable[[TrainState], None]:
    config, strategy = setup.config, setup.strategy
    split = FittedSplit(setup.splits.train, setup.preprocessing.stored_shape)
    batches = TrainBatches(split, config.batch_size, config.seed)
    steps = range(setup.fit_config.steps_per_epoch)
    placed = [strategy.place_batch(batches[step]) for step in steps]
    compiled_step = strategy.compile(setup.step)

    def run_epoch(state: TrainState) -> None:
        for batch in placed:
            state, _ = compiled_step(state, batch)
        jax.block_until_ready(state)

    return run_epoch


def _our_loop(setup: TrainingSetup) -> Callable[[TrainState], None]:
    pipeline = pipelines.build(setup, setup.strategy.place(setup.state), name="resident")
    fit_config = training.FitConfig(1, setup.fit_config.steps_per_epoch)

    def evaluate(state: TrainState) -> dict[str, jax.Array]:  # the bare loop does not evaluate
        return {"loss": jnp.zeros(()), "correct": jnp.zeros(()), "count": jnp.ones(())}

    def run_epoch(state: TrainState) -> None:
        try:
            state, _, _ = training.fit(state, pipeline.run_steps, evaluate, fit_config)
        except training.Interrupted as error:
            raise KeyboardInterrupt from error  # there is no checkpoint to resume from
        jax.block_until_ready(state)

    return run_epoch


def _time_epochs(
    setup: TrainingSetup, loops: dict[str, Callable[[TrainState], None]]
) -> dict[str, list[float]]:
    """Seconds per step of each loop, one value per round; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    for round_, (name, run_epoch) in itertools.product(range(ROUNDS + 1), loops.items()):
        state = jax.block_until_ready(setup.strategy.place(setup.state))
        start = time.perf_counter()
        run_epoch(state)
        if round_:
            seconds = time.perf_counter() - start
            times[name].append(seconds / setup.fit_config.steps_per_epoch)
    return times
