"""What a measured case is worth: MFU, roofline position, dollars, joules.

Combines the metrics of a case with the device table, prices, and the peak measured on the device.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from experiments import hardware
from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.harness.study import Case, CaseResult
from experiments.measure.above_peak import above_peak
from experiments.measure.merit import figures_of_merit
from experiments.microbenchmarks import peak
from experiments.records import Record
from experiments.records.provenance import accelerator, matmul_precision
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_RATES = ("flops_per_second", "images_per_second", "time_to_target")
_MONEY = ("price_per_hour", "flops_per_dollar", "cost_to_target", "cost_per_million_images")


def check(config: RunConfig, backend: Backend) -> None:
    """Reads the prices and accelerators that the user supplies, before anything is measured.

    Raises:
      InputError: they cannot be used.
    """
    if config.price is not None and config.prices is not None:
        raise InputError("--price and --prices: give one of them")
    _price(config, _device(config, backend), _names(backend))


def compute(
    case: Case, result: CaseResult, backend: Backend
) -> tuple[dict[str, float], dict[str, Any]]:
    """Computes the figures of merit of a measured case.

    Simulated devices share one processor, so there are none for them.

    Args:
      case: gives the dtype, and the options about prices and devices.
      result: as the study returned it.
      backend: on which it was measured.

    Returns:
      Figures by the names of `METRICS`, and the sources of price and device data, for the
      provenance, with remarks on the peak beside those of the result. Both are empty if the
      metrics have no time and bytes of a step or a call.
    """
    metrics, origin = result.metrics, result.provenance
    work = "step" if "bytes_per_step" in metrics else "call"
    seconds = metrics.get(f"{work}_time")
    if backend.simulated or not seconds or f"bytes_per_{work}" not in metrics:
        return {}, {}
    devices = origin.get("strategy_devices", 1)
    precision = origin.get("precision", matmul_precision())
    dtype = origin.get("dtype", case.config.precision)
    measured_peak = peak.measure_peak(backend.devices[0], dtype, precision)
    peaks = {
        "peak_measured": devices * measured_peak.flops_per_second,
        "bandwidth_measured": devices * measured_peak.bandwidth,
    }
    device = _device(case.config, backend)
    price, source = _price(case.config, device, _names(backend))
    figures = figures_of_merit(
        flops=metrics.get(f"flops_per_{work}"),
        bytes=metrics[f"bytes_per_{work}"],
        seconds=seconds,
        device=device,
        precision=dtype,
        matmul_precision=precision,
        devices=devices,
        price_per_hour=price,
        power=metrics.get("power"),
        energy=metrics.get("energy_per_call"),
        **peaks,
        **{name: metrics[name] for name in _RATES if name in metrics},
    )
    sources: dict[str, Any] = {"price_source": source, "device_row": _device_row(device, backend)}
    above = above_peak(
        figures.get("mfu_measured_peak"),
        figures.get("roofline_share"),
        winograd=origin.get("winograd", False),
        bytes=metrics[f"bytes_per_{work}"],
        memory_bytes=peak.triad_bytes(backend.platform) * devices,
    )
    if remarks := [text for text in (above, _disturbed(measured_peak)) if text]:
        sources["remarks"] = [*origin.get("remarks", []), *remarks]
    return figures | peaks, sources


def _disturbed(measured_peak: peak.Peak) -> str:
    """How much the samples of the peak differ, in tens of per cent; empty if it rounds to none."""
    percent = round(10 * measured_peak.shortfall) * 10
    return f"measured peak: the best of samples whose median is {percent} % lower" * (percent > 0)


def reprice(record: Record, config: RunConfig, backend: Backend) -> Record:
    """A record with its figures in dollars recomputed at current prices; its file is unchanged."""
    device = _device(config, backend)
    price, source = _price(config, device, _names(backend))
    if price is None or "roofline_time" not in record.metrics:
        return record
    rates: dict[str, Any] = {
        name: record.metrics[name] for name in _RATES if name in record.metrics
    }
    figures = figures_of_merit(
        device=device,
        devices=record.provenance.get("strategy_devices", 1),
        price_per_hour=price,
        **rates,
    )
    money = {name: figures[name] for name in _MONEY if name in figures}
    return dataclasses.replace(
        record,
        metrics=record.metrics | money,
        provenance=record.provenance | {"price_source": source},
    )


def _device(config: RunConfig, backend: Backend) -> hardware.Device | None:
    extra = hardware.load(config.devices) if config.devices is not None else ()
    rows = (hardware.find(name, backend.platform, extra) for name in _names(backend))
    return next((row for row in rows if row), None)


def _price(
    config: RunConfig, device: hardware.Device | None, names: Sequence[str]
) -> tuple[float | None, str]:
    """Dollars per hour of one accelerator and the source of that price; (None, "") if unknown."""
    return prices.find_price(
        device, names, price=config.price, prices=config.prices, devices=config.devices
    )


def _names(backend: Backend) -> tuple[str, ...]:
    """Names under which a price may be listed: JAX's device kind, and a CPU's product name."""
    return tuple(dict.fromkeys((backend.devices[0].device_kind, accelerator(backend))))


def _device_row(device: hardware.Device | None, backend: Backend) -> str:
    if device:
        return device.name
    if backend.platform == "cpu":
        return "a CPU has no published peak: it is compared with the one measured here"
    return hardware.how_to_add(backend.devices[0].device_kind)
