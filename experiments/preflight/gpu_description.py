"""What XLA needs to know of a GPU that is not attached, to compile for it."""

from collections.abc import Iterable
from typing import Any

from experiments.hardware import table


def describe(row: dict[str, Any], capabilities: Iterable[dict[str, Any]]) -> str:
    """The text form of XLA's ``GpuTargetConfigProto`` of a GPU.

    Args:
      row: of ``[[gpu]]`` in ``targets.toml``.
      capabilities: the rows of ``[[capability]]``.
    """
    common = {entry["name"]: entry for entry in capabilities}[row["capability"]]
    major, minor = row["capability"].split(".")
    device = next(device for device in table() if device.name == row["device"])
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49_152,
        "shared_memory_per_core": common["shared_memory"],
        "threads_per_core_limit": common["threads"],
        "core_count": row["cores"],
        "fpus_per_core": common["lanes"],
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65_535,
        "block_dim_limit_z": 65_535,
        "memory_bandwidth": int(device.bandwidth.value),
        "l2_cache_size": row["l2"],
        "clock_rate_ghz": row["clock"] / 1e9,
        "device_memory_size": row["memory"],
        "shared_memory_per_block_optin": common["shared_memory_of_a_block"],
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
    }
    lines = [
        "gpu_device_info {",
        *(f"  {name}: {value}" for name, value in fields.items()),
        f"  cuda_compute_capability {{ major: {major} minor: {minor} }}",
        "}",
        'platform_name: "CUDA"',
        "dnn_version_info { major: 9 minor: 10 }",
        f'device_description_str: "{device.kinds[0]}"',
    ]
    return "\n".join(lines) + "\n"
