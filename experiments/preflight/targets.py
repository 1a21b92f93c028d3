"""What can be compiled for: slices of TPUs, GPUs in one machine, and the processor here."""

import functools
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.hardware import Cell, Device, table
from jaxcnn.errors import InputError, require_known

# What Colab lends without payment, as its own menu has it; one device each.
COLAB = ("tpu-v5e-1", "gpu-t4")
ALL = (
    "cpu", "tpu-v2-8", "tpu-v3-8", "tpu-v4-8", "tpu-v5e-1", "tpu-v5e-4", "tpu-v5p-8", "tpu-v6e-1", "tpu-v6e-4", "tpu-7x-4",
    "gpu-mx150", "gpu-p100", "gpu-v100", "gpu-t4", "gpu-a100", "gpu-a100-80gb", "gpu-h100", "gpu-h200", "gpu-b200",
)  # fmt: skip
GROUPS = {"colab": COLAB, "all": ALL}
MOST = 9999


@dataclass(frozen=True)
class Target:
    """Accelerators of one kind that a program is compiled for.

    Attributes:
      name: as the command line has it.
      platform: ``tpu``, ``gpu`` or ``cpu``.
      topology: as the compiler has it: ``v5e:2x2``, ``1x1x4``; of CPUs their number.
      chips: as the device table counts them.
      devices: JAX's.
      row: the device table's name; empty for a CPU.
      capability: of a GPU, as ``7.5``.
      description: of a GPU, for its compiler.
      memory: of one device as its driver tells it, B; None where the compiler says.
      interconnect: B/s in and out of a chip together; None where nobody says, or there is one chip.
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

    @property
    def device(self) -> Device | None:
        """Its row of the device table."""
        return next((row for row in table() if row.name == self.row), None)


def find(names: str) -> list[Target]:
    """The targets that a text names, by commas.

    Raises:
      InputError: one is not known, or has no such slice.

    >>> [(target.topology, target.devices) for target in find("tpu-v5e-4,tpu-v4-8,gpu-h100-8")]
    [('v5e:2x2', 4), ('v4:2x2x1', 8), ('1x1x8', 8)]
    """
    each = [name.strip() for name in names.split(",")]
    named = [one for name in each for one in GROUPS.get(name, (name,))]
    return [target(name) for name in dict.fromkeys(named)]


def target(name: str) -> Target:
    """One target: ``tpu-v5e-4`` as Google counts, ``tpu-v5e:2x4`` by its shape, ``gpu-t4``, ``gpu-h100-8``, ``cpu``, ``cpu-8``."""
    if found := re.fullmatch(r"cpu(?:-([1-9]\d*))?", name):
        count = int(found[1] or 1)
        return Target(name, "cpu", str(_counted(name, count)), count, count)
    for row in _rows()["gpu"]:
        if found := re.fullmatch(rf"gpu-{row['name']}(?:-([1-9]\d?))?", name):
            return _gpu(name, row, int(found[1] or 1))
    for row in _rows()["tpu"]:
        if found := re.fullmatch(
            rf"tpu-{row['name']}(?:-([1-9]\d*)|:([1-9]\d*(?:x[1-9]\d*)+))?", name
        ):
            return _tpu(name, row, found[1], found[2])
    require_known("target", name, known())
    raise InputError(f"--target={name}: write it as {ALL[1]}")


def known() -> list[str]:
    """The names of what can be compiled for, groups included; of each TPU every slice that has a name."""
    slices = [
        f"tpu-{row['name']}-{_number(row, shape)}"
        for row in _rows()["tpu"]
        for shape in row["slices"]
    ]
    return [*GROUPS, "cpu", *slices, *(f"gpu-{row['name']}" for row in _rows()["gpu"])]


def _counted(name: str, count: int) -> int:
    if count > MOST:
        raise InputError(f"--target={name}: at most {MOST} devices")
    return count


def _tpu(name: str, row: dict[str, Any], number: str | None, shape: str | None) -> Target:
    shapes = {_number(row, each): each for each in row["slices"]}
    if shape is None and number is not None and int(number) not in shapes:
        counts = ", ".join(map(str, shapes))
        raise InputError(
            f"--target={name}: slices of {row['name']} have {counts} {row['counts']}; give another by its shape, as tpu-{row['name']}:{row['slices'][0]}"
        )
    shape = shape or (shapes[int(number)] if number else row["slices"][0])
    chips = _counted(name, _chips(shape))
    prefix = "tpu7x" if row["name"] == "7x" else row["name"]
    between = _cell(row) if chips > 1 else None
    return Target(
        name,
        "tpu",
        f"{prefix}:{shape}",
        chips,
        chips * row["devices_per_chip"],
        row["device"],
        interconnect=between,
    )


def _number(row: dict[str, Any], shape: str) -> int:
    """What Google's name of a slice counts; a chip of those whose cores count has two."""
    return _chips(shape) * (2 if row["counts"] == "cores" else 1)


def _chips(shape: str) -> int:
    return math.prod(map(int, shape.split("x")))


def _gpu(name: str, row: dict[str, Any], count: int) -> Target:
    between = _cell(row) if count > 1 else None
    text = _description(row)
    return Target(
        name, "gpu", f"1x1x{count}", count, count, row["device"], row["capability"], text, row["memory"], between
    )  # fmt: skip


def _cell(row: dict[str, Any]) -> Cell | None:
    if "interconnect" not in row:
        return None
    cell, source = row["interconnect"], _file()["sources"][row["interconnect"]["source"]]
    return Cell(cell["value"], source["title"], cell["date"].isoformat(), source.get("address", ""))


def _description(row: dict[str, Any]) -> str:
    """What XLA must know of a GPU, as the text of its ``GpuTargetConfigProto``."""
    shared = next(each for each in _rows()["capability"] if each["name"] == row["capability"])
    major, minor = row["capability"].split(".")
    device = next(each for each in table() if each.name == row["device"])
    fields = {
        "threads_per_block_limit": 1024, "threads_per_warp": 32, "shared_memory_per_block": 49_152,
        "shared_memory_per_core": shared["shared_memory"], "threads_per_core_limit": shared["threads"],
        "core_count": row["cores"], "fpus_per_core": shared["lanes"], "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65_535, "block_dim_limit_z": 65_535, "memory_bandwidth": int(device.bandwidth.value),
        "l2_cache_size": row["l2"], "clock_rate_ghz": row["clock"] / 1e9, "device_memory_size": row["memory"],
        "shared_memory_per_block_optin": shared["shared_memory_of_a_block"], "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
    }  # fmt: skip
    lines = "\n".join(f"  {name}: {value}" for name, value in fields.items())
    capability = f"  cuda_compute_capability {{ major: {major} minor: {minor} }}"
    dnn = "dnn_version_info { major: 9 minor: 10 }"
    return f'gpu_device_info {{\n{lines}\n{capability}\n}}\nplatform_name: "CUDA"\n{dnn}\ndevice_description_str: "{device.kinds[0]}"\n'


def _rows() -> dict[str, list[dict[str, Any]]]:
    return {kind: _file()[kind] for kind in ("tpu", "gpu", "capability")}


@functools.cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
