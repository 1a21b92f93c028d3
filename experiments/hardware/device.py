"""One row of the device table, and the peak that applies to a computation in a given precision."""

from dataclasses import dataclass, field

DTYPES = ("float32", "tf32", "bfloat16", "float16", "float8", "int8")

# Values of `jax_default_matmul_precision`: names of `jax.lax.Precision` and their older aliases.
_DEFAULT = (None, "default", "fastest", "bfloat16")
_HIGH = ("high", "tensorfloat32", "bfloat16_3x")
_HIGHEST = ("highest", "float32")


@dataclass(frozen=True)
class Cell:
    """One figure of the device table.

    Attributes:
      value: in SI base units.
      source: the title of the source.
      date: the day on which the figure was looked up there, YYYY-MM-DD.
      address: the URL of the source; empty if it has none.
    """

    value: float
    source: str
    date: str
    address: str = ""


@dataclass(frozen=True)
class Price(Cell):
    """What one chip costs, in US dollars per hour on demand.

    Attributes:
      host: whether the host is included, which has to be rented with the chip.
    """

    host: bool = True


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Every figure is per chip. A figure that could not be confirmed is None or absent.

    Attributes:
      name: the product name.
      platform: ``gpu`` or ``tpu`` (``cpu`` only in a user's own file).
      kinds: the names that JAX gives it.
      devices_per_chip: number of JAX devices on one chip.
      note: a remark that the name alone does not convey.
      peaks: dense FLOP/s by dtype; for int8 operations per second.
      bandwidth: of the memory, B/s.
      memory: capacity, B.
      power: the power limit (TDP), W.
      power_measured: the highest that the vendor measured, W; not a limit.
      prices: by provider, the one that figures use first.
      purchase: list price of a card at its launch, US dollars.
      on_chip_memory: B; the vector memory of a TPU, the L2 cache of a GPU.
      published: figures printed by the studies that this project reproduces, by their headings.
    """

    name: str
    platform: str
    kinds: tuple[str, ...]
    devices_per_chip: int = 1
    note: str = ""
    peaks: dict[str, Cell] = field(default_factory=dict)
    bandwidth: Cell | None = None
    memory: Cell | None = None
    power: Cell | None = None
    power_measured: Cell | None = None
    prices: dict[str, Price] = field(default_factory=dict)
    purchase: Cell | None = None
    on_chip_memory: Cell | None = None
    published: dict[str, Cell] = field(default_factory=dict)

    @property
    def price(self) -> Price | None:
        """The price that figures use unless another one is given; None if none is known."""
        return next(iter(self.prices.values()), None)

    def per_device(self, cell: Cell | None) -> float | None:
        """A figure of the chip divided by the number of JAX devices on it.

        >>> chip = Device("TPU v3", "tpu", ("TPU v3",), devices_per_chip=2)
        >>> chip.per_device(Cell(123e12, "Google Cloud: TPU v3", "2026-11-21"))
        61500000000000.0
        """
        return None if cell is None else cell.value / self.devices_per_chip


def peak_for(device: Device, precision: str, matmul_precision: str | None = None) -> Cell | None:
    """The peak that matrix products and convolutions of a dtype can reach, as JAX computes them.

    JAX computes a float32 product in float32 only on request. By default it rounds the operands to
    bfloat16 on a TPU, and to TF32 on NVIDIA GPUs from Ampere on (docs.jax.dev, "Matmul precision";
    jax issue 18934), so the default peak is that of bfloat16 or of TF32. At ``high`` a GPU still
    uses TF32, while a TPU takes three passes; at ``highest`` a TPU takes six. No peak is published
    for the latter two.

    Args:
      device: a row of the device table.
      precision: dtype of the arrays, or ``tf32``.
      matmul_precision: a level as `jax.default_matmul_precision` accepts it; None is JAX's default.

    Returns:
      The peak; None if no figure is published for this combination or the level is unknown. It is
      never guessed.

    >>> peaks = {"float32": Cell(8.1e12, "NVIDIA", "2026-11-21")}
    >>> t4 = Device("T4", "gpu", ("Tesla T4",), peaks=peaks)
    >>> peak_for(t4, "float32").value, peak_for(t4, "bfloat16")
    (8100000000000.0, None)
    """
    if precision != "float32":
        return device.peaks.get(precision)
    if matmul_precision not in _DEFAULT + _HIGH + _HIGHEST:
        return None
    if device.platform == "tpu":
        return device.peaks.get("bfloat16") if matmul_precision in _DEFAULT else None
    float32_peak = device.peaks.get("float32")
    if matmul_precision in _HIGHEST:
        return float32_peak
    return device.peaks.get("tf32", float32_peak)
