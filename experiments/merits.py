"""What a measured case is worth: the device table, prices and the peak measured here, brought to its numbers."""

import dataclasses

import jax

from experiments import hardware
from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.measure import peak
from experiments.measure.merit import figures_of_merit
from experiments.provenance import accelerator
from experiments.records import Record
from experiments.studies.study import Case, Measured
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_RATES = ("flops_per_second", "images_per_second", "time_to_target")
_MONEY = ("price_per_hour", "flops_per_dollar", "cost_to_target", "cost_per_million_images")


def check(config: RunConfig, backend: Backend) -> None:
    """Reads what the user gave of prices and accelerators, before anything is measured.

    Raises:
      InputError: it cannot be used.
    """
    if config.price is not None and config.prices is not None:
        raise InputError("--price and --prices: give one of them")
    _price(config, _device(config, backend), _names(backend))


def merits(case: Case, measured: Measured, backend: Backend) -> tuple[dict[str, float], dict[str, str]]:
    """Figures of merit by the names of `METRICS`, and where the figures behind them are from.

    Simulated devices share one processor, so of them nothing is said; nor of what a study says has no roofline here, such as a copy.
    """
    found, told = measured.metrics, measured.provenance
    work = "step" if "bytes_per_step" in found else "call"
    seconds = found.get(f"{work}_time")
    if backend.simulated or not seconds or not told.get("roofline", True) or f"bytes_per_{work}" not in found:
        return {}, {}
    count, precision = (
        told.get("strategy_devices", 1),
        told.get("precision", jax.config.jax_default_matmul_precision or "default"),
    )
    dtype = told.get("dtype", case.config.precision)
    seen = peak.measured(backend.devices[0], dtype, precision)
    peaks = {"peak_measured": count * seen.flops_per_second, "bandwidth_measured": count * seen.bandwidth}
    device = _device(case.config, backend)
    price, source = _price(case.config, device, _names(backend))
    energy = found.get("energy_per_step")
    figures = figures_of_merit(
        flops=found.get(f"flops_per_{work}"),
        bytes=found[f"bytes_per_{work}"],
        seconds=seconds,
        device=device,
        precision=dtype,
        matmul_precision=precision,
        devices=count,
        price_per_hour=price,
        power=energy and energy / seconds,
        **peaks,
        **{name: found[name] for name in _RATES if name in found},
    )
    return figures | peaks, {"price_source": source, "device_row": _row(device, backend)}


def repriced(record: Record, config: RunConfig, backend: Backend) -> Record:
    """A record as it would be at the prices that hold now; those it was made with are what it keeps."""
    device = _device(config, backend)
    price, source = _price(config, device, _names(backend))
    if price is None or "roofline_time" not in record.metrics:
        return record
    figures = figures_of_merit(
        device=device,
        devices=record.provenance.get("strategy_devices", 1),
        price_per_hour=price,
        **{name: record.metrics[name] for name in _RATES if name in record.metrics},
    )
    money = {name: figures[name] for name in _MONEY if name in figures}
    told = record.provenance | {"price_source": source}
    return dataclasses.replace(record, metrics=record.metrics | money, provenance=told)


def _device(config: RunConfig, backend: Backend) -> hardware.Device | None:
    extra = hardware.load(config.devices) if config.devices is not None else ()
    found = (hardware.find(name, backend.platform, extra) for name in _names(backend))
    return next((device for device in found if device), None)


def _price(config: RunConfig, device: hardware.Device | None, names: tuple[str, ...]) -> tuple[float | None, str]:
    rows = hardware.load(config.devices) if config.devices is not None else ()
    also = (*names, *(name for row in rows for name in (row.name, *row.kinds)))
    listed = prices.read_prices(config.prices, also) if config.prices is not None else None
    given = prices.parse_price(config.price) if config.price is not None else None
    found = (prices.price_of(device, name, listed, given) for name in names)
    return next(((price, source) for price, source in found if price is not None), (None, ""))


def _names(backend: Backend) -> tuple[str, ...]:
    """What a price may be listed under: what JAX calls the device, and of a CPU its maker's name for it."""
    return tuple(dict.fromkeys((backend.devices[0].device_kind, accelerator(backend))))


def _row(device: hardware.Device | None, backend: Backend) -> str:
    if device:
        return device.name
    if backend.platform == "cpu":
        return "a CPU has no published peak: it is held against the one measured here"
    return hardware.how_to_add(backend.devices[0].device_kind)
