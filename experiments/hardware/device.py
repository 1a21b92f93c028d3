"""What is known of an accelerator: a row of the device table, and which of its peaks a computation is held against."""

from dataclasses import dataclass, field

DTYPES = ("float32", "tf32", "bfloat16", "float16", "int8")

# jax.lax.Precision and the older names for its levels, as `jax_default_matmul_precision` takes them.
_DEFAULT = (None, "default", "fastest", "bfloat16")
_HIGH = ("high", "tensorfloat32", "bfloat16_3x")
_HIGHEST = ("highest", "float32")


@dataclass(frozen=True)
class Cell:
    """One figure of the table.

    Attributes:
      value: in SI base units.
      source: the title of where it stands.
      date: the day on which it was looked up there, YYYY-MM-DD.
      address: of the source, where it has one.
    """

    value: float
    source: str
    date: str
    address: str = ""


@dataclass(frozen=True)
class Device:
    """One accelerator; every figure is per chip, and None or absent where it could not be confirmed.

    Attributes:
      name: of the product.
      platform: ``gpu`` or ``tpu`` (``cpu`` only in a user's own file).
      kinds: what JAX calls it.
      devices_per_chip: JAX devices that the figures stand for.
      note: what the name alone does not tell.
      peaks: dense FLOP/s by dtype; int8 in operations a second.
      bandwidth: of its memory, B/s.
      memory: B.
      power: the limit, W.
      price: USD an hour, on demand.
      on_chip_memory: B; vector memory of a TPU, L2 cache of a GPU.
      published: what the documents print of it, by their own headings.
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
    price: Cell | None = None
    on_chip_memory: Cell | None = None
    published: dict[str, Cell] = field(default_factory=dict)

    def per_device(self, cell: Cell | None) -> float | None:
        """The share of one JAX device in a figure of the chip.

        >>> chip = Device("TPU v3", "tpu", ("TPU v3",), devices_per_chip=2)
        >>> chip.per_device(Cell(123e12, "Google Cloud: TPU v3", "2026-11-21"))
        61500000000000.0
        """
        return None if cell is None else cell.value / self.devices_per_chip


def peak_for(device: Device, precision: str, matmul_precision: str | None = None) -> Cell | None:
    """The peak that products and convolutions of arrays of a dtype can reach, as JAX computes them.

    A float32 product is one of float32 only when asked for. By default JAX rounds its factors to bfloat16 on a TPU and to TF32
    on NVIDIA GPUs from Ampere on (docs.jax.dev, "Matmul precision"; jax issue 18934), so there its peak is that of bfloat16
    or of TF32. At ``high`` a GPU does the same; a TPU takes three passes, at ``highest`` six, for which no peak is published.

    Args:
      device: a row of the table.
      precision: the arrays' dtype, or ``tf32``.
      matmul_precision: None is JAX's default; otherwise a level as `jax.default_matmul_precision` takes it.

    Returns:
      None where there is no such figure, or the level is not one of these: never a guess.

    >>> t4 = Device("T4", "gpu", ("Tesla T4",), peaks={"float32": Cell(8.1e12, "NVIDIA", "2026-11-21")})
    >>> peak_for(t4, "float32").value, peak_for(t4, "bfloat16")
    (8100000000000.0, None)
    """
    if precision != "float32":
        return device.peaks.get(precision)
    if matmul_precision not in _DEFAULT + _HIGH + _HIGHEST:
        return None
    if device.platform == "tpu":
        return device.peaks.get("bfloat16") if matmul_precision in _DEFAULT else None
    full = device.peaks.get("float32")
    return full if matmul_precision in _HIGHEST else device.peaks.get("tf32", full)
