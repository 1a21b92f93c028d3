"""Bounds of a train step, from published figures of the accelerator: time, MFU and cost.

The arithmetic is that of the definition: an algorithm with fewer operations (Winograd) may take
less than the bound by arithmetic.
"""

from dataclasses import dataclass

from experiments.hardware import peak_for
from experiments.measure.roofline import Roofline
from experiments.preflight.communication import communication_bound, why_unknown
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileResult
from experiments.preflight.targets import Target
from jaxcnn import parallel

# Training images of the data sets that the networks' recipes are for. Cats versus dogs: the split
# of S. Agrawal's talk "Graphical Processing Units for Deep Learning"; CIFAR-10 and MNIST: the whole
# training set; ImageNet: ILSVRC 2012; VOC: 2007 and 2012 together, as in Darknet; no name:
# the digits, nine tenths of the training set.
EPOCH_IMAGES = {
    "mnist": 60_000,
    "cifar10": 50_000,
    "cats_vs_dogs": 20_000,
    "imagenet": 1_281_167,
    "voc": 16_551,
    "": 1_293,
}


_BOUND = "the bound is a roofline of published figures, of the definition's FLOPs"


@dataclass(frozen=True)
class Bound:
    """What a step cannot do better than, with the FLOPs of its definition.

    Attributes:
      metrics: by the names of `METRICS`.
      limit: ``compute``, ``memory`` or ``communication``; empty if no bound is known.
      remarks: what a reader of the metrics should know.
      communication: seconds of it; None if unknown.
    """

    metrics: dict[str, float]
    limit: str = ""
    remarks: tuple[str, ...] = ()
    communication: float | None = None


def bound(
    result: CompileResult,
    spec: ProgramSpec,
    target: Target,
    *,
    price_per_hour: float | None,
    epoch_images: int,
    matmul_precision: str | None = None,
) -> Bound:
    """The bound of a step.

    Args:
      result: with the FLOPs and bytes of the step.
      spec: the program.
      target: the accelerators it was compiled for.
      price_per_hour: US dollars of all chips of the target, unused ones too; None if unknown.
      epoch_images: training images per epoch.
      matmul_precision: of float32 products, see `peak_for`.

    Returns:
      Only the work itself, and a remark, for a target without published peak or bandwidth.
    """
    if result.flops is None or result.bytes is None:
        return Bound({})
    work = {
        "flops_per_step": result.flops,
        "bytes_per_step": result.bytes,
        "arithmetic_intensity": result.flops / result.bytes,
    }
    if result.collectives:
        work["bytes_exchanged"] = float(sum(entry.bytes for entry in result.collectives))
    roofline = _roofline(spec, target, matmul_precision)
    if roofline is None:
        return Bound(work, remarks=(_why_no_bound(spec, target, matmul_precision),))
    seconds = roofline.bound(result.flops, result.bytes)
    limit = roofline.limit(result.flops, result.bytes)
    communication, remarks = _communication(result, spec, target)
    if communication:
        work["communication_bound"] = communication
        seconds, limit = max((seconds, limit), (communication, "communication"))
    speed = _speed(seconds, result.flops, spec.batch_size, roofline)
    cost = _cost(seconds / spec.batch_size, price_per_hour, epoch_images)
    return Bound(work | speed | cost, limit, (*remarks, _BOUND), communication)


def _speed(seconds: float, flops: float, batch_size: int, roofline: Roofline) -> dict[str, float]:
    return {
        "step_time_bound": seconds,
        "images_per_second_bound": batch_size / seconds,
        "mfu_ceiling": flops / seconds / roofline.peak,
        "peak_published": roofline.peak,
        "bandwidth_published": roofline.bandwidth,
    }


def _roofline(spec: ProgramSpec, target: Target, matmul_precision: str | None) -> Roofline | None:
    """The roofline of the chips that the strategy uses; None if a figure is not published."""
    device = target.device
    peak = peak_for(device, spec.precision, matmul_precision) if device else None
    if device is None or peak is None or device.bandwidth is None:
        return None
    device_count = parallel.device_count(spec.strategy, target.devices)
    chips = target.chips * device_count / target.devices
    return Roofline(peak.value * chips, device.bandwidth.value * chips)


def _why_no_bound(spec: ProgramSpec, target: Target, matmul_precision: str | None) -> str:
    if target.platform == "cpu":
        return "no bound on the step time: a CPU has no published peak; experiments.run measures it"
    peak = named_peak(spec.precision, matmul_precision)
    return f"no bound on the step time: no published peak of {peak} for {target.row}"


def named_peak(precision: str, matmul_precision: str | None) -> str:
    """The arithmetic that a peak is of, for a message.

    >>> named_peak("float32", "highest"), named_peak("bfloat16", None)
    ("float32 at matmul precision 'highest'", 'bfloat16')
    """
    is_default = precision != "float32" or matmul_precision in (None, "default")
    return precision if is_default else f"{precision} at matmul precision {matmul_precision!r}"


def _cost(seconds_per_image: float, price: float | None, images: int) -> dict[str, float]:
    if not price:
        return {}
    per_image = seconds_per_image * price / 3600
    return {
        "price_per_hour": price,
        "cost_per_thousand_images_bound": 1000 * per_image,
        "cost_per_epoch_bound": images * per_image,
    }


def _communication(
    result: CompileResult, spec: ProgramSpec, target: Target
) -> tuple[float | None, tuple[str, ...]]:
    """Seconds that a step communicates at least, None if unknown; and remarks."""
    if parallel.device_count(spec.strategy, target.devices) == 1:
        return 0.0, ()
    sizes = parallel.mesh_sizes(spec.strategy, target.devices, spec.mesh).values()
    seconds = communication_bound(result.collectives, target, list(sizes))
    if seconds is None:
        return None, (f"no bound on communication: {why_unknown(result.collectives, target)}",)
    cell = target.interconnect
    if not seconds or cell is None:
        return seconds, ()
    return seconds, (f"interconnect: {cell.source}, {cell.date}; half of it in each direction",)
