"""Figures of merit: how much of an accelerator was used, and what a dollar and a joule of it bought (C8).

Names and units are those of `experiments.records.metrics.METRICS`. What cannot be known is absent, never zero.
"""

from experiments.hardware import Device, peak_for
from experiments.measure.roofline import Roofline


def figures_of_merit(
    *,
    flops: float | None = None,
    bytes: float | None = None,
    seconds: float | None = None,
    flops_per_second: float | None = None,
    images_per_second: float | None = None,
    peak_measured: float | None = None,
    bandwidth_measured: float | None = None,
    device: Device | None = None,
    precision: str = "float32",
    matmul_precision: str | None = None,
    devices: int = 1,
    price_per_hour: float | None = None,
    power: float | None = None,
    time_to_target: float | None = None,
) -> dict[str, float]:
    """All figures that follow from what was measured and from the device table.

    Work, rates, measured peaks and power are of all devices together. The table's figures are per chip; where only some of
    a chip's devices are used, they and the price count for that share of it.

    Args:
      flops: model FLOPs of one step or call.
      bytes: that it must move at least once.
      seconds: that it took.
      flops_per_second: model FLOP/s; ``flops / seconds`` if not given.
      images_per_second: in training, if there are images.
      peak_measured: FLOP/s of a large matrix product, now.
      bandwidth_measured: B/s, now.
      device: its row of the table; None for a CPU and for one that is not known.
      precision: dtype of the computation.
      matmul_precision: as `peak_for` takes it.
      devices: how many JAX devices.
      price_per_hour: USD for one chip.
      power: mean W, measured.
      time_to_target: seconds of training until the target was reached.

    Returns:
      By the names of METRICS.
    """
    if flops_per_second is None and flops is not None and seconds:
        flops_per_second = flops / seconds
    chips = devices / (device.devices_per_chip if device else 1)
    found: dict[str, float | None] = _published(device, precision, matmul_precision, devices)
    found |= {
        "mfu": _over(flops_per_second, found["peak_published"]),
        "mfu_measured_peak": _over(flops_per_second, peak_measured),
    }
    found |= _roofline(flops, bytes, seconds, peak_measured, bandwidth_measured)
    found |= _energy(flops_per_second, images_per_second, power, found["power_data_sheet"])
    found |= _money(
        flops_per_second,
        images_per_second,
        time_to_target,
        price_per_hour and price_per_hour * chips,
    )
    return {name: float(value) for name, value in found.items() if value is not None}


def _published(
    device: Device | None, precision: str, matmul_precision: str | None, devices: int
) -> dict[str, float | None]:
    if device is None:
        return dict.fromkeys(("peak_published", "bandwidth_published", "power_data_sheet"))
    cells = {
        "peak_published": peak_for(device, precision, matmul_precision),
        "bandwidth_published": device.bandwidth,
        "power_data_sheet": device.power,
    }
    return {
        name: None if cell is None else devices * device.per_device(cell)
        for name, cell in cells.items()
    }


def _roofline(
    flops: float | None,
    bytes: float | None,
    seconds: float | None,
    peak: float | None,
    bandwidth: float | None,
) -> dict[str, float | None]:
    if bytes is None:
        return {}
    found = {"arithmetic_intensity": _over(flops, bytes)}
    if peak and bandwidth:
        found["roofline_time"] = Roofline(peak, bandwidth).bound(flops or 0.0, bytes)
        found["roofline_share"] = _over(found["roofline_time"], seconds)
    return found


def _energy(
    flops_per_second: float | None,
    images_per_second: float | None,
    measured: float | None,
    data_sheet: float | None,
) -> dict[str, float | None]:
    """η = FLOP/s ÷ W = FLOP/J, by either power, in a column of its own."""
    return {
        "flops_per_joule": _over(flops_per_second, measured),
        "flops_per_joule_data_sheet": _over(flops_per_second, data_sheet),
        "images_per_joule": _over(images_per_second, measured),
        "images_per_joule_data_sheet": _over(images_per_second, data_sheet),
        "power_data_sheet": data_sheet,
    }


def _money(
    flops_per_second: float | None,
    images_per_second: float | None,
    time_to_target: float | None,
    price_per_hour: float | None,
) -> dict[str, float | None]:
    """μ = FLOP/s ÷ ($/s) = FLOP/$, and what the training cost."""
    if not price_per_hour:
        return {}
    per_second = price_per_hour / 3600
    return {
        "price_per_hour": price_per_hour,
        "flops_per_dollar": _over(flops_per_second, per_second),
        "cost_to_target": None if time_to_target is None else time_to_target * per_second,
        "cost_per_million_images": _over(1e6 * per_second, images_per_second),
    }


def _over(amount: float | None, by: float | None) -> float | None:
    """A ratio where both are known, and there is something to divide by."""
    return amount / by if amount is not None and by else None
