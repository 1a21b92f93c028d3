"""Does the loop cost more than the step? Our loop against a bare compiled step in a Python loop, in turn."""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.study import Case, CaseResult, Context
from experiments.workloads import pipelines
from experiments.workloads.setup import build_setup
from jaxcnn import training
from jaxcnn.data.source import fitted
from jaxcnn.data.streamed import TrainBatches
from jaxcnn.training import TrainState

ROUNDS = 15


def measure(case: Case, context: Context) -> CaseResult:
    """Times epochs of both, in turn; a round is one epoch of each.

    The bare loop calls the compiled step on batches that already lie on the device and waits once, at the end. Ours is
    `training.fit` with the resident pipeline: order, gathering, normalisation, metrics, checks and all.
    """
    config, setup = case.config, build_setup(case.config, context.backend)
    batches = TrainBatches(
        fitted(setup.splits.train, setup.preprocessing.stored_shape), config.batch_size, config.seed
    )
    placed = [
        setup.strategy.place_batch(batches[step])
        for step in range(setup.fit_config.steps_per_epoch)
    ]
    step = setup.strategy.compile(setup.step)
    pipeline = pipelines.build(setup, setup.strategy.place(setup.state), name="resident")
    fit_config = training.FitConfig(1, setup.fit_config.steps_per_epoch)

    def bare(state: TrainState) -> None:
        for batch in placed:
            state, _ = step(state, batch)
        jax.block_until_ready(state)

    def ours(state: TrainState) -> None:
        none = {"loss": jnp.zeros(()), "correct": jnp.zeros(()), "count": jnp.ones(())}
        try:
            jax.block_until_ready(
                training.fit(state, pipeline.run_steps, lambda state: none, fit_config)[0]
            )
        except training.Interrupted as stop:
            raise KeyboardInterrupt from stop  # there is nothing here to go on from

    loops = {"bare": bare, "ours": ours}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for round_, (name, loop) in itertools.product(range(ROUNDS + 1), loops.items()):
        state = jax.block_until_ready(setup.strategy.place(setup.state))
        start = time.perf_counter()
        loop(state)
        if round_:  # the first compiles and warms up
            times[name].append((time.perf_counter() - start) / len(placed))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    ratios = np.array(times["ours"]) / np.array(times["bare"])
    return CaseResult(
        metrics={
            "step_time": medians["ours"],
            "bare_step_time": medians["bare"],
            "loop_over_bare": float(np.median(ratios)),
        },
        samples={"step_time": times["ours"], "bare_step_time": times["bare"]},
        provenance={
            "strategy_devices": len(setup.strategy.devices),
            "compiler_options": setup.strategy.options,
            "pipeline": "resident",
            "steps_per_round": len(placed),
        },
    )
