"""What a measured case is worth: the device table, prices and the peak measured here, brought to its numbers."""

from experiments import hardware
from experiments.config import RunConfig
from experiments.hardware import prices
from experiments.measure import peak
from experiments.measure.merit import figures_of_merit
from experiments.provenance import accelerator
from experiments.studies.study import Case, Measured
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

_RATES = ("flops_per_second", "images_per_second", "time_to_target", "power")


def check(config: RunConfig, backend: Backend) -> None:
    """Reads what the user gave of prices and accelerators, before anything is measured.

    Raises:
      InputError: it cannot be used.
    """
    if config.price and config.prices:
        raise InputError("--price and --prices: give one of them")
    _price(config, _device(config, backend), _names(backend))


def merits(case: Case, measured: Measured, backend: Backend) -> tuple[dict[str, float], dict[str, str]]:
    """Figures of merit by the names of `METRICS`, and where the figures behind them are from.

    Simulated devices share one processor, so of them nothing is said; nor of what computed no products.
    """
    found = measured.metrics
    rate = "flops_per_step" if "flops_per_step" in found else "flops_per_call"
    if backend.simulated or rate not in found:
        return {}, {}
    device = _device(case.config, backend)
    count = measured.provenance.get("strategy_devices", 1)
    precision = measured.provenance.get("dtype", case.config.precision)
    seen = peak.measured(backend.devices[0], precision)
    price, source = _price(case.config, device, _names(backend))
    figures = figures_of_merit(
        flops=found[rate],
        bytes=found.get(rate.replace("flops", "bytes")),
        seconds=found.get("step_time", found.get("call_time")),
        peak_measured=count * seen.flops_per_second,
        bandwidth_measured=count * seen.bandwidth,
        device=device,
        precision=precision,
        matmul_precision=measured.provenance.get("precision"),
        devices=count,
        price_per_hour=price,
        **{name: found[name] for name in _RATES if name in found},
    )
    figures |= {"peak_measured": count * seen.flops_per_second, "bandwidth_measured": count * seen.bandwidth}
    return figures, {"price_source": source, "device_row": _row(device, backend)}


def _device(config: RunConfig, backend: Backend) -> hardware.Device | None:
    extra = hardware.load(config.devices) if config.devices else ()
    return hardware.find(backend.devices[0].device_kind, backend.platform, extra)


def _price(config: RunConfig, device: hardware.Device | None, names: tuple[str, ...]) -> tuple[float | None, str]:
    rows = hardware.load(config.devices) if config.devices else ()
    also = (*names, *(name for row in rows for name in (row.name, *row.kinds)))
    listed = prices.read_prices(config.prices, also) if config.prices else None
    given = prices.parse_price(config.price) if config.price else None
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
