"""The types of a record's fields: what a file must have to be read as a record.

Fields, settings and provenance that are not named here may be anything that JSON has.
"""

import math
from typing import Annotated, Any

import msgspec

MAX_DEPTH = 20  # of objects and lists within each other; ours have at most six
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_Number = float | None  # None: not finite when it was measured


class _Settings(msgspec.Struct):
    """Settings that are read by name."""

    model: str | None = None
    dataset: str | None = None
    precision: str | None = None
    strategy: str | None = None
    library: str | None = None
    kernel: str | None = None
    point: str | None = None
    scaling: str | None = None
    instruction_set: str | None = None
    target: str | None = None
    batch_size: _Count | None = None
    image_size: _Count | None = None
    devices_used: _Count | None = None
    epochs: _Count | None = None
    launches: _Count | None = None
    seed: _Count | None = None
    workers: _Count | None = None


class _Provenance(msgspec.Struct):
    """Provenance that is read by name."""

    accelerator: str | None = None
    machine: str | None = None
    platform: str | None = None
    host_cpu: str | None = None
    noise: str | None = None
    time: str = ""
    price_source: str | None = None
    device_row: str | None = None
    memory_peak_source: str | None = None
    remarks: list[str] = []
    versions: dict[str, str | None] = {}
    peer_versions: dict[str, str | None] = {}
    examples: dict[str, _Count] = {}
    strategy_devices: _Count | None = None
    host_cores: _Count | None = None
    row: _Count | None = None
    case_seconds: float | None = None
    simulated: bool = False
    published: bool = False
    elsewhere: bool = False


class _Series(msgspec.Struct):
    name: str
    unit: str
    source: str
    times: list[_Number] = []
    values: list[_Number] = []


class _Phase(msgspec.Struct):
    name: str
    start: float
    end: float


class _Utilisation(msgspec.Struct):
    means: dict[str, dict[str, _Number]] = {}
    series: list[_Series] = []
    phases: list[_Phase] = []


class _Layout(msgspec.Struct):
    study: _Name
    case: _Name
    status: str
    schema: _Count
    message: str = ""
    settings: _Settings = msgspec.field(default_factory=_Settings)
    metrics: dict[str, _Number] = {}
    samples: dict[str, list[_Number]] = {}
    curves: list[dict[str, _Number]] = []
    utilisation: _Utilisation = msgspec.field(default_factory=_Utilisation)
    provenance: _Provenance = msgspec.field(default_factory=_Provenance)
    dataset_summary: dict[str, Any] = {}
    mistakes: dict[str, Any] = {}


# By study: settings without which its records cannot be shown together.
_REQUIRED = {
    "batch_sweep": ("batch_size",),
    "input_pipeline": ("workers",),
    "isa": ("instruction_set",),
    "kernels": ("kernel",),
    "peers": ("model", "batch_size", "image_size"),
    "precision": ("point",),
    "preflight": ("model", "precision", "strategy", "target", "batch_size"),
    "scaling": ("scaling", "batch_size", "devices_used"),
    "speedrun": ("library",),
    "descent": ("model",),
}


def validate(entry: Any) -> None:
    """Checks that JSON has the types of a record's fields.

    Args:
      entry: as read from a file, with today's names of fields.

    Raises:
      ValueError: it has not; the message names the field, without its value.
    """
    _check_values(entry, "$", 0)
    try:
        layout = msgspec.convert(entry, _Layout)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    missing = [
        name
        for name in _REQUIRED.get(layout.study, ())
        if entry.get("settings", {}).get(name) is None and not layout.provenance.published
    ]
    if missing:
        raise ValueError(f"a record of study {layout.study!r} without settings {missing}")


def _check_values(value: Any, place: str, depth: int) -> None:
    """Numbers must fit in 64 bits, text must be encodable, and nesting must have an end."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, place, depth)
            _check_values(item, f"{place}.{key}"[:100], depth + 1)
    elif isinstance(value, list) and set(map(type, value)) == {float}:  # samples: quickly
        if not all(map(math.isfinite, value)):
            raise ValueError(f"{place}[…]: a number that is not finite")
    elif isinstance(value, list):
        for item in value:
            _check_values(item, f"{place}[…]"[:100], depth + 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{place}: text with half of a surrogate pair") from error
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"{place}: an integer of more than 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place}: a number that is not finite")
