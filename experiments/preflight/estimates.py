"""The expected time of a step on a target, and what it costs, each with its interval."""

from collections.abc import Iterable, Sequence

from experiments.preflight import time_model
from experiments.preflight.operation import Operation
from experiments.preflight.targets import Target
from experiments.preflight.time_model import Rates, TimeEstimate

Metrics = dict[str, float]
ESTIMATE, MEASURED = "estimate: ", "measured: "  # with which remarks of a single case begin


def estimate_step(
    items: Iterable[Operation], target: Target, precision: str, communication: float | None
) -> TimeEstimate | None:
    """The expected time of a step; None without published figures.

    Args:
      items: the kernels of one device.
      target: the accelerators.
      precision: of the arithmetic: ``float32``, ``bfloat16`` or ``float16``.
      communication: seconds of collectives; they count in full, as if none of it were hidden.
    """
    items = tuple(items)
    chip = time_model.rates(target.device, precision) if target.device else None
    if chip is None or not items:
        return None
    share = target.chips / target.devices
    limits = Rates(chip.family, chip.arithmetic, chip.peak * share, chip.bandwidth * share)
    return time_model.estimate(items, limits, communication or 0.0)


def estimate_metrics(
    estimate: TimeEstimate, examples: int | None, price_per_hour: float | None, epoch: int | None
) -> Metrics:
    """The estimate by the names of `METRICS`.

    Args:
      estimate: of the time of a step.
      examples: per step; None if that is not known.
      price_per_hour: of the target, in US dollars; None if that is not known.
      epoch: examples of an epoch; None if that is not known.
    """
    ends = {"": estimate.seconds, "_low": estimate.low, "_high": estimate.high}
    metrics = {f"step_time_estimate{end}": seconds for end, seconds in ends.items()}
    if not examples:
        return metrics
    # the fastest step is the highest rate
    times = {"": estimate.seconds, "_low": estimate.high, "_high": estimate.low}
    for end, seconds in times.items():
        metrics[f"images_per_second_estimate{end}"] = examples / seconds
    for end, seconds in ends.items() if price_per_hour else ():
        dollars = seconds / 3600 * price_per_hour / examples
        metrics[f"cost_per_million_images_estimate{end}"] = 1e6 * dollars
        if epoch:
            metrics[f"cost_per_epoch_estimate{end}"] = epoch * dollars
    return metrics


def remarks(estimate: TimeEstimate) -> Sequence[str]:
    """What a reader of an estimate should know."""
    largest = sorted(estimate.shares.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in largest)
    interval = (
        "by its misses of the few small programs that were measured"
        if estimate.is_small
        else "of 90 %, by its misses on devices that it had not seen"
    )
    return (
        f"{ESTIMATE}the sum of the kernels' rooflines, fitted to published runs; interval "
        f"{interval}; of the time: {parts}",
    )
