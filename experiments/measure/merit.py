"""Figures of merit: utilisation of an accelerator, and FLOPs and images per dollar and per joule.

Names and units are those of `experiments.records.metrics.METRICS`. A figure that cannot be computed
is left out, never zero.
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
    energy: float | None = None,
    time_to_target: float | None = None,
) -> dict[str, float]:
    """All figures that follow from the measurements and the device table.

    Work, rates, measured peaks and power are those of all devices together. Figures in the table
    are per chip; if only some of a chip's devices are used, they and the price count
    proportionally.

    Args:
      flops: model FLOPs of one step or call.
      bytes: that it must move at least.
      seconds: that it took.
      flops_per_second: model FLOP/s; ``flops / seconds`` if not given.
      images_per_second: in training.
      peak_measured: FLOP/s of a large matrix product, measured in this process.
      bandwidth_measured: B/s, measured in this process.
      device: its row of the table; None for a CPU or an unknown device.
      precision: dtype of the computation.
      matmul_precision: as for `peak_for`.
      devices: the number of JAX devices.
      price_per_hour: USD for one chip.
      power: mean measured power in watts.
      energy: measured joules of one call.
      time_to_target: seconds of training until the target was reached.

    Returns:
      The figures by the names of `METRICS`.

    >>> figures_of_merit(flops=1e9, seconds=0.1, peak_measured=1e11)
    {'mfu_measured_peak': 0.1}
    """
    if flops_per_second is None and flops is not None and seconds:
        flops_per_second = flops / seconds
    chips = devices / (device.devices_per_chip if device else 1)
    price = price_per_hour and price_per_hour * chips
    figures = _published(device, precision, matmul_precision, devices)
    figures |= {
        "mfu": _ratio(flops_per_second, figures["peak_published"]),
        "mfu_measured_peak": _ratio(flops_per_second, peak_measured),
    }
    figures |= _roofline(flops, bytes, seconds, peak_measured, bandwidth_measured)
    figures |= _energy(flops_per_second, images_per_second, power, figures["power_data_sheet"])
    if energy is not None:
        figures["flops_per_joule"] = _ratio(flops, energy)
    figures["energy_to_target"] = _product(power, time_to_target)
    figures |= _money(flops_per_second, images_per_second, time_to_target, price)
    return {name: float(value) for name, value in figures.items() if value is not None}


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
    figures = {"arithmetic_intensity": _ratio(flops, bytes)}
    if peak and bandwidth:
        bound = Roofline(peak, bandwidth).bound(flops or 0.0, bytes)
        figures |= {"roofline_time": bound, "roofline_share": _ratio(bound, seconds)}
    return figures


def _energy(
    flops_per_second: float | None,
    images_per_second: float | None,
    measured: float | None,
    data_sheet: float | None,
) -> dict[str, float | None]:
    """η = FLOP/s ÷ W = FLOP/J, by measured and by data-sheet power in separate columns."""
    return {
        "flops_per_joule": _ratio(flops_per_second, measured),
        "flops_per_joule_data_sheet": _ratio(flops_per_second, data_sheet),
        "images_per_joule": _ratio(images_per_second, measured),
        "images_per_joule_data_sheet": _ratio(images_per_second, data_sheet),
        "power_data_sheet": data_sheet,
    }


def _money(
    flops_per_second: float | None,
    images_per_second: float | None,
    time_to_target: float | None,
    price_per_hour: float | None,
) -> dict[str, float | None]:
    """μ = FLOP/s ÷ ($/s) = FLOP/$, and the cost of training."""
    if not price_per_hour:
        return {}
    per_second = price_per_hour / 3600
    return {
        "price_per_hour": price_per_hour,
        "flops_per_dollar": _ratio(flops_per_second, per_second),
        "cost_to_target": None if time_to_target is None else time_to_target * per_second,
        "cost_per_million_images": _ratio(1e6 * per_second, images_per_second),
    }


def _product(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    """The ratio; None if either is unknown or the denominator is zero."""
    return numerator / denominator if numerator is not None and denominator else None
