"""What to expect at best: step time, MFU and money by the roofline of published figures, and scaling by the interconnect's."""

from dataclasses import dataclass

from experiments.hardware import peak_for
from experiments.measure.collectives import efficiency, sent
from experiments.measure.roofline import Roofline
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileResult
from experiments.preflight.targets import Target
from jaxcnn import parallel

# Training images of the data sets that the networks' recipes are for: A2, B3 and B4 of the studied documents; ILSVRC 2012; VOC 2007
# and 2012 together, as Darknet trains; and of the digits that lie at hand, nine tenths of the training set.
IMAGES = {
    "mnist": 60_000,
    "cifar10": 50_000,
    "cats_vs_dogs": 20_000,
    "imagenet": 1_281_167,
    "voc": 16_551,
    "": 1_293,
}


@dataclass(frozen=True)
class Bound:
    """What nothing can beat.

    Attributes:
      metrics: by the names of `METRICS`.
      limit: ``compute`` or ``memory``; empty where no bound is known.
      remarks: what should be known beside it.
    """

    metrics: dict[str, float]
    limit: str = ""
    remarks: tuple[str, ...] = ()


def bound(
    result: CompileResult, spec: ProgramSpec, target: Target, price: float | None, images: int
) -> Bound:
    """The bound of a step.

    Args:
      outcome: with its FLOPs and bytes.
      asked: the program.
      target: on which.
      price: USD an hour for one chip; None where nobody knows. All chips of a target are paid for, those that are not used too.
      images: of an epoch.
    """
    if result.flops is None or result.bytes is None:
        return Bound({})
    work = {
        "flops_per_step": result.flops,
        "bytes_per_step": result.bytes,
        "arithmetic_intensity": result.flops / result.bytes,
    }
    if result.collectives:
        work["bytes_exchanged"] = float(sum(each.bytes for each in result.collectives))
    peak = peak_for(target.device, spec.precision) if target.device else None
    if target.device is None or peak is None or target.device.bandwidth is None:
        return Bound(work, remarks=(_unknown(spec, target),))
    used = parallel.device_count(spec.strategy, target.devices)
    chips = target.chips * used / target.devices
    roofline = Roofline(peak.value * chips, target.device.bandwidth.value * chips)
    seconds = roofline.bound(result.flops, result.bytes)
    least = {
        "step_time_bound": seconds,
        "images_per_second_bound": spec.batch_size / seconds,
        "mfu_ceiling": result.flops / seconds / roofline.peak,
        "peak_published": roofline.peak,
        "bandwidth_published": roofline.bandwidth,
    }
    metrics = (
        work | least | _money(seconds / spec.batch_size, price and price * target.chips, images)
    )
    between, remarks = _scaling(result, target, seconds)
    return Bound(metrics | between, roofline.limit(result.flops, result.bytes), remarks)


def _unknown(spec: ProgramSpec, target: Target) -> str:
    if target.platform == "cpu":
        return "a CPU has no published peak: experiments.run measures it"
    return f"no published peak of {spec.precision} for {target.row}: no bound on its time"


def _money(seconds: float, price: float | None, images: int) -> dict[str, float]:
    """Of so many seconds an image."""
    if not price:
        return {}
    each = seconds * price / 3600
    return {
        "price_per_hour": price,
        "cost_per_thousand_images_bound": 1000 * each,
        "cost_per_epoch_bound": images * each,
    }


def _scaling(
    result: CompileResult, target: Target, seconds: float
) -> tuple[dict[str, float], tuple[str, ...]]:
    if not result.collectives:
        return {}, ()
    if target.interconnect is None:
        return {}, (f"no figure of the interconnect of {target.row}: no bound on scaling",)
    least = sent(result.collectives, target.chips) / (
        target.interconnect.value / 2
    )  # in and out together make the figure
    worst, best = efficiency(seconds, least)
    return {
        "communication_bound": least, "scaling_efficiency_bound": best, "scaling_efficiency_unhidden": worst,
    }, (f"interconnect: {target.interconnect.source}, {target.interconnect.date}; half of it goes out",)  # fmt: skip
