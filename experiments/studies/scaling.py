"""Several devices compared with one: how much faster, and how much of a step is communication?

Data parallelism as in the IBM course "Hardware Accelerated Deep Learning": each device has a
replica of the network and a share of the batch, and the gradients are averaged before one
synchronous update.
"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.noise import compare
from experiments.measure.timing import time_interleaved
from experiments.studies.strategies import for_strategy, measure_step
from experiments.workloads import synthetic_step
from jaxcnn import parallel
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = (
    "step_time",
    "images_per_second",
    "communication_share",
    "bytes_summed",
    "memory_planned",
    "largest_loss_difference",
    "largest_parameter_difference",
)
DEFAULT = ("pmap", "data", "fsdp", "tensor", "data_tensor")
ROUNDS = {"quick": 9, "full": 30}
ONE_DEVICE = (
    "one device: nothing to scale; --device=cpu:8 simulates eight, which tests that results agree, "
    "and no speeds"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One device and then more, with weak and strong scaling, for each strategy of `DEFAULT`.

    The batch size is that of one device. Strong scaling divides this batch among the devices; weak
    scaling gives each device a batch of this size. The quick preset measures one device and all of
    them, the full preset doubles their number from one to all.

    Raises:
      InputError: an unknown strategy or one that uses a single device, or a batch that does not
        divide among the devices.
    """
    config = synthetic_step.fill_defaults(config)
    strategies = DEFAULT if config.strategy == "auto" else (config.strategy,)
    for name in strategies:
        if parallel.device_count(name, 2) == 1:
            raise InputError(
                f"--strategy={name} uses one device and does not scale: choose "
                f"{', '.join(DEFAULT[:-1])} or {DEFAULT[-1]}, or leave the option out to measure "
                "all of them"
            )
    counts = device_counts(len(backend.devices))
    counts = counts if config.preset == "full" else sorted({counts[0], counts[-1]})
    points = [
        (scaling, count)
        for count in counts
        for scaling in (("weak", "strong") if count > 1 else ("base",))
    ]
    return [
        _case(for_strategy(config, name), backend, *point)
        for name in strategies
        for point in points
    ]


def device_counts(available: int) -> list[int]:
    """The powers of two up to the number of available devices, and that number.

    >>> device_counts(6)
    [1, 2, 4, 6]
    """
    return sorted({2**power for power in range(available.bit_length())} | {available})


def _case(config: RunConfig, backend: Backend, scaling: str, count: int) -> Case:
    config = config.replace(batch_size=config.batch_size * (count if scaling == "weak" else 1))
    mesh = config.mesh if count == len(backend.devices) else None  # fewer: the default mesh
    config = config.replace(mesh=mesh)
    strategy = parallel.strategy(config.strategy, backend.devices[:count], mesh=mesh)
    strategy.check_batch_size(config.batch_size)
    point = "1 device" if count == 1 else f"{count} devices, {scaling}"
    parts = (config.model, config.strategy, config.precision, scaling, f"x{count}")
    return Case(
        config,
        synthetic_step.settings(config, point) | {"scaling": scaling, "devices_used": count},
        (*parts, f"b{config.batch_size}"),
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Measures one strategy on the first devices.

    The share of communication is measured where each device computes the whole network for its
    share of the batch, which one device can do alone.

    The batch of a weak case may be more than one device holds, so its results are compared with
    those of one device only where the devices share their memory.
    """
    scaling, count = case.settings["scaling"], case.settings["devices_used"]
    backend = context.backend.first(count)
    fits_one_device = scaling != "weak" or backend.simulated
    result = measure_step(case.config, backend, compare=fits_one_device)
    remarks = list(result.provenance["remarks"])
    if len(context.backend.devices) == 1:
        remarks.append(ONE_DEVICE)
    share: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    is_divided = parallel.batch_multiple(case.config.strategy, count, case.config.mesh) == count
    if count > 1 and is_divided and not backend.simulated:
        share, samples, remark = _communication(case.config, backend)
        remarks.append(remark)
    return dataclasses.replace(
        result,
        metrics=result.metrics | share,
        samples=result.samples | samples,
        provenance=result.provenance | {"remarks": remarks},
    )


def _communication(
    config: RunConfig, backend: Backend
) -> tuple[dict[str, float], dict[str, list[float]], str]:
    """The share of a step that exceeds one device's local work alone, both timed in turn.

    The share consists of sums over devices, waiting for the slowest device, and dispatching to
    several devices. Communication that the compiler overlaps with computation takes no extra time
    and is not part of it.

    Returns:
      Metrics, samples and a remark.
    """
    local = config.replace(
        strategy=parallel.REFERENCE,
        mesh=None,
        batch_size=config.batch_size // len(backend.devices),
    )
    programs = {
        "step": synthetic_step.build(config, backend),
        "local": synthetic_step.build(local, backend.first(1)),
    }
    timings = time_interleaved(programs, ROUNDS[config.preset])
    times = {name: list(timing.samples) for name, timing in timings.items()}
    local_share = compare(times["local"], times["step"], paired=True)
    remark = (
        "collectives: the same local work on one device alone takes "
        f"{local_share.ratio:.3f} of the step ({local_share.low:.3f} to {local_share.high:.3f}); "
        "the rest is sums over devices, waiting and dispatch"
    )
    metrics = {"communication_share": 1 - local_share.ratio}
    return metrics, {f"{name}_in_turn": values for name, values in times.items()}, remark
