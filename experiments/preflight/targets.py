"""Targets of a compilation: slices of TPUs, GPUs in one machine, and this machine's CPU."""

import dataclasses
import functools
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.hardware import Cell, Device, table
from experiments.preflight import gpu_description, target_names
from experiments.preflight.target_groups import GROUPS
from experiments.preflight.target_names import NUMBER
from jaxcnn.errors import InputError

MAX_DEVICES = 9999
MAX_GPUS = 16  # in one machine, as in NVIDIA's DGX-2 and Google's a2-megagpu-16g

Row = dict[str, Any]  # of a table of targets.toml
_CUBES = ", and AxBxC of multiples of 4 with A ≤ B ≤ C"


@dataclass(frozen=True)
class Target:
    """Accelerators of one kind that a program is compiled for.

    Attributes:
      name: as on the command line.
      platform: ``tpu``, ``gpu`` or ``cpu``.
      topology: the compiler's name of it, such as ``v5e:2x2`` or ``1x1x4``; for CPUs their number.
      chips: the number of chips, as the device table counts them.
      devices: the number of JAX devices.
      row: the name in the device table; empty for a CPU.
      capability: compute capability of a GPU, such as ``7.5``; for AMD's, its instruction set.
      description: the GPU as its compiler needs it described; empty for AMD's, which have no
        compiler that does without the GPU.
      memory: of one device, B, as its driver reports it; None if the compiler knows it.
      interconnect: B/s in and out of a chip together; None if not published, or for a single chip.
      chip_config: libtpu's name of the configuration of a chip; empty for its default.
    """

    name: str
    platform: str
    topology: str
    chips: int
    devices: int
    row: str = ""
    capability: str = ""
    description: str = field(default="", repr=False)
    memory: int | None = None
    interconnect: Cell | None = None
    chip_config: str = ""

    @property
    def topology_options(self) -> dict[str, Any]:
        """What libtpu needs to know of a slice beside its name.

        Up to version 0.0.42 it takes a host of four chips for granted, even for a single chip.
        """
        options: dict[str, Any] = {}
        if self.chips == 1:
            options["chips_per_host_bounds"] = (1, 1, 1)
        if self.chip_config:
            options["chip_config_name"] = self.chip_config
        return options

    @property
    def device(self) -> Device | None:
        """The row of the device table; None for a CPU."""
        return next((row for row in table() if row.name == self.row), None)


def find(names: str) -> list[Target]:
    """Targets by their comma-separated names, each once; a group stands for its members.

    Raises:
      InputError: an unknown target, or a slice of a size that does not exist.

    >>> [(target.topology, target.devices) for target in find("tpu-v5e-4,tpu-v4-8,gpu-h100-8")]
    [('v5e:2x2', 4), ('v4:2x2x1', 4), ('1x1x8', 8)]
    """
    stripped = [name.strip() for name in names.split(",")]
    members = [member for name in stripped for member in GROUPS.get(name.casefold(), (name,))]
    distinct: dict[Target, Target] = {}  # by everything but the name
    for resolved in map(target, members):
        distinct.setdefault(dataclasses.replace(resolved, name=""), resolved)
    return list(distinct.values())


def target(name: str) -> Target:
    """One target by its name.

    Args:
      name: ``tpu-v5e-4`` (Google's name of a slice), ``tpu-v5e:2x4`` (its shape), ``gpu-t4``,
        ``gpu-h100-8`` (eight GPUs in one machine), ``cpu``, or ``cpu-8`` (simulated devices); also
        clouds' own names, such as ``v5litepod-8`` and ``a100-40gb``.

    Raises:
      InputError: an unknown target, or a slice of a size that does not exist.
    """
    requested, name = name, target_names.canonical(name, _aliases())
    if match := re.fullmatch(rf"cpu(?:-({NUMBER}))?", name):
        count = _check_count(name, int(match[1] or 1))
        return Target(name, "cpu", str(count), chips=count, devices=count)
    for row in _rows("gpu"):
        if match := re.fullmatch(rf"gpu-{row['name']}(?:-({NUMBER}))?", name):
            count = int(match[1] or 1)
            if count > MAX_GPUS:
                raise InputError(
                    f"--target={name}: a target is one machine, which has at most {MAX_GPUS} GPUs"
                )
            return _gpu(name, row, count)
    for row in _rows("tpu"):
        shape = rf"{NUMBER}(?:x{NUMBER})+"
        if match := re.fullmatch(rf"tpu-{row['name']}(?:-({NUMBER})|:({shape}))?", name):
            return _tpu(name, row, match[1], match[2])
        if name.startswith(f"tpu-{row['name']}:"):
            raise InputError(
                f"--target={name[:60]}: the shape of a slice is written as in "
                f"tpu-{row['name']}:{row['slices'][-1]}"
            )
    raise target_names.unknown(requested, known_names())


def _aliases() -> dict[str, str]:
    """Names of TPUs and GPUs by their names without prefix, and by those of clouds."""
    rows = [(kind, row) for kind in ("tpu", "gpu") for row in _rows(kind)]
    return {
        alias: f"{kind}-{row['name']}"
        for kind, row in rows
        for alias in (row["name"], *row.get("aliases", ()))
    }


def known_names() -> list[str]:
    """Names of groups and targets, with every slice of a TPU that Google has a name for."""
    slices = [
        f"tpu-{row['name']}-{_slice_number(row, shape)}"
        for row in _rows("tpu")
        for shape in row["slices"]
    ]
    return [*GROUPS, "cpu", *slices, *(f"gpu-{row['name']}" for row in _rows("gpu"))]


def _check_count(name: str, count: int) -> int:
    if count > MAX_DEVICES:
        raise InputError(f"--target={name}: at most {MAX_DEVICES} devices")
    return count


def _tpu(name: str, row: Row, number: str | None, shape: str | None) -> Target:
    shapes = {_slice_number(row, slice_shape): slice_shape for slice_shape in row["slices"]}
    if shape is None and number is not None and int(number) not in shapes:
        numbers = ", ".join(map(str, shapes))
        raise InputError(
            f"--target={name}: slices of {row['name']} have {numbers} {row['counts']}; "
            f"give another by its shape, as tpu-{row['name']}:{row['slices'][0]}"
        )
    if shape is not None and not _exists(row, shape):
        raise InputError(
            f"--target={name}: {row['name']} has no slice of {shape}; "
            f"its slices are {', '.join(row['slices'])}{_CUBES if 'largest' in row else ''}"
        )
    if shape is None and number is None:
        name = f"{name}-{next(iter(shapes))}"
    shape = shape or (shapes[int(number)] if number else row["slices"][0])
    chips = _check_count(name, _chip_count(shape))
    generation = "tpu7x" if row["name"] == "7x" else row["name"]
    return Target(
        name,
        "tpu",
        f"{generation}:{shape}",
        chips=chips,
        devices=chips * row["devices_per_chip"],
        row=row["device"],
        interconnect=_interconnect(row) if chips > 1 else None,
        chip_config=row.get("chip_config", ""),
    )


def _exists(row: Row, shape: str) -> bool:
    """Whether Google has slices of a shape: those of the table, and those made of 4×4×4 cubes."""
    sides = [int(side) for side in shape.split("x")]
    is_made_of_cubes = len(sides) == 3 and sides == sorted(sides) and not any(n % 4 for n in sides)
    fits_into_pod = _chip_count(shape) <= row.get("largest", 0)
    return shape in row["slices"] or (is_made_of_cubes and fits_into_pod)


def _slice_number(row: Row, shape: str) -> int:
    """The number in Google's name of a slice: chips, or cores, of which a chip has two."""
    return _chip_count(shape) * (2 if row["counts"] == "cores" else 1)


def _chip_count(shape: str) -> int:
    return math.prod(map(int, shape.split("x")))


def _gpu(name: str, row: Row, count: int) -> Target:
    return Target(
        name,
        "gpu",
        f"1x1x{count}",
        chips=count,
        devices=count,
        row=row["device"],
        capability=row["capability"],
        description=gpu_description.describe(row, _rows("capability")) if "cores" in row else "",
        memory=row.get("memory"),
        interconnect=_interconnect(row) if count > 1 else None,
    )


def _interconnect(row: Row) -> Cell | None:
    if "interconnect" not in row:
        return None
    cell, source = row["interconnect"], _file()["sources"][row["interconnect"]["source"]]
    return Cell(cell["value"], source["title"], cell["date"].isoformat(), source.get("address", ""))


def _rows(kind: str) -> list[Row]:
    return _file()[kind]


@functools.cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
