"""How much of a train step of several processes is more than the work of its devices."""

import jax
import numpy as np

from experiments.measure.timing import compile_program, time_call
from experiments.workloads.setup import TrainingSetup, build_setup
from experiments.workloads.synthetic_step import noise_batch
from jaxcnn import distributed, parallel
from jaxcnn.backend import Backend

BUDGET = 1.0  # seconds of sampling


def communication_metrics(
    topic: str, setup: TrainingSetup, step_time: float | None
) -> dict[str, float]:
    """The share of a train step beyond the local work of the slowest device.

    Every process times, at the same time as the others, the train step of a device's share of the
    batch on its first device alone. The rest of a step consists of collective operations, waiting
    for the slowest device and dispatch. Communication that overlaps with computation takes no
    extra time and is not part of it.

    Args:
      topic: the name of the case, see `distributed.exchange`.
      setup: of the run.
      step_time: seconds of a step of the run; None if it is not known.

    Returns:
      Empty for a single process, for simulated devices, and where a device does not compute the
      whole network for its share of the batch, which it then cannot do alone.
    """
    known = distributed.exchange(f"{topic}/has step time", step_time is not None)
    config, strategy = setup.config, setup.strategy
    count = len(strategy.devices)
    is_divided = parallel.batch_multiple(config.strategy, count, config.mesh) == count
    is_simulated = strategy.devices[0].platform == "cpu" and len(strategy.local_devices) > 1
    if not distributed.is_distributed() or is_simulated or not is_divided:
        return {}
    if step_time is None or not all(known):
        return {}
    seconds = distributed.exchange(f"{topic}/local step", _local_step_time(setup))
    return {"communication_share": 1 - max(seconds) / step_time}


def _local_step_time(setup: TrainingSetup) -> float:
    """Median seconds of the train step of a device's share of the batch, on one device."""
    device = setup.strategy.local_devices[0]
    share = setup.config.batch_size // len(setup.strategy.devices)
    config = setup.config.replace(strategy=parallel.REFERENCE, mesh=None, batch_size=share)
    local = build_setup(config, Backend(device.platform, (device,)))
    shape = local.preprocessing.stored_shape
    batch = local.strategy.place_batch(noise_batch(share, shape, len(local.dataset.classes)))
    state = local.strategy.place(local.state)
    program = compile_program(local.strategy.compile(local.step), state, batch).executable

    def take_step() -> dict[str, jax.Array]:
        nonlocal state
        state, metrics = program(state, batch)
        return metrics

    return float(np.median(time_call(take_step, budget=BUDGET).samples))
