"""One device against several (B5, B6): how much faster, and how much of a step goes into agreeing?"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.timing import compare, interleaved
from experiments.studies.strategies import filled, measure_step, settings, with_devices
from experiments.workloads import synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = (
    "step_time", "images_per_second", "communication_share", "bytes_summed", "memory_planned", "largest_loss_difference",
    "largest_parameter_difference",
)  # fmt: skip
ROUNDS = {"quick": 9, "full": 30}
ONE_DEVICE = "one device: nothing to scale; --device=cpu:8 simulates eight, which shows that results agree, and no speeds"


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """For `pmap` and `data` one device, then more of them, weak and strong.

    The batch is that of one device. Strong scaling divides it among the devices; weak scaling gives so much to each. The
    quick preset has one device and all of them, the full one doubles from one to all.

    Raises:
      InputError: a strategy that uses one device only, an unknown one, or a batch that does not divide among the devices.
    """
    config = filled(config)
    strategies = ("pmap", "data") if config.strategy == "auto" else (config.strategy,)
    for name in strategies:
        if parallel.device_count(name, 2) == 1:
            raise InputError(
                f"--strategy={name} uses one device and does not scale: choose pmap or data, or leave "
                "it out for both"
            )
    counts = device_counts(len(backend.devices))
    counts = counts if config.preset == "full" else sorted({counts[0], counts[-1]})
    points = [
        (scaling, count)
        for count in counts
        for scaling in (("weak", "strong") if count > 1 else ("base",))
    ]
    return [
        _case(config.replace(strategy=name), backend, *point)
        for name in strategies
        for point in points
    ]


def device_counts(most: int) -> list[int]:
    """One, doubled, and all.

    >>> device_counts(6)
    [1, 2, 4, 6]
    """
    return sorted({2**power for power in range(most.bit_length())} | {most})


def _case(config: RunConfig, backend: Backend, scaling: str, count: int) -> Case:
    config = config.replace(batch_size=config.batch_size * (count if scaling == "weak" else 1))
    parallel.strategy(config.strategy, backend.devices[:count]).check_batch_size(config.batch_size)
    point = "1 device" if count == 1 else f"{count} devices, {scaling}"
    asked = settings(config, point) | {"scaling": scaling, "devices_used": count}
    return Case(
        config,
        asked,
        (
            config.model,
            config.strategy,
            config.precision,
            scaling,
            f"x{count}",
            f"b{config.batch_size}",
        ),
    )


def measure(case: Case, context: Context) -> CaseResult:
    """One strategy on so many devices.

    A weak case's batch may be more than one device holds, so its results are compared with one device's only where the
    devices share a memory.
    """
    scaling, count = case.settings["scaling"], case.settings["devices_used"]
    backend, simulated = with_devices(context.backend, count), context.backend.simulated
    found = measure_step(case.config, backend, simulated, compare=scaling != "weak" or simulated)
    remarks = [
        *found.provenance["remarks"],
        *([ONE_DEVICE] if len(context.backend.devices) == 1 else []),
    ]
    share, samples, more = (
        _communication(case.config, backend) if count > 1 and not simulated else ({}, {}, [])
    )
    return dataclasses.replace(
        found,
        metrics=found.metrics | share,
        samples=found.samples | samples,
        provenance=found.provenance | {"remarks": remarks + more},
    )


def _communication(
    config: RunConfig, backend: Backend
) -> tuple[dict[str, float], dict[str, list[float]], list[str]]:
    """The share of a step beyond the same local work on one device alone, timed in turn.

    That share is sums between devices, waiting for the slowest, and handing the work to several devices. What the compiler
    hides behind computing is not in it, as it takes no time.
    """
    local = config.replace(
        strategy=parallel.REFERENCE, batch_size=config.batch_size // len(backend.devices)
    )
    programs = {
        "step": synthetic_step.build(config, backend),
        "local": synthetic_step.build(local, with_devices(backend, 1)),
    }
    times = {
        name: list(timing.samples)
        for name, timing in interleaved(programs, ROUNDS[config.preset]).items()
    }
    found = compare(times["local"], times["step"], paired=True)
    remark = (
        f"collectives: the same local work on one device alone takes {found.ratio:.3f} of the step ({found.low:.3f} to "
        f"{found.high:.3f}); the rest is sums between devices, waiting and dispatch"
    )
    return (
        {"communication_share": 1 - found.ratio},
        {f"{name}_in_turn": values for name, values in times.items()},
        [remark],
    )
