"""Whether this machine has a TPU, by what it shows on its bus: known before JAX is there, and without asking libtpu."""

from pathlib import Path

_GOOGLE = "0x1ae0"
# Google's disks and network cards are on the bus too; the chips as jax/_src/hardware_utils.py lists them: v2 and v3 to 7x.
_TPU_CHIPS = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")


def has_tpu(root: Path = Path("/")) -> bool:
    """Whether a TPU is among the devices that the machine shows under `root`."""
    vendors = (
        file
        for file in root.glob("sys/bus/pci/devices/*/vendor")
        if file.read_text().strip() == _GOOGLE
    )
    on_bus = any((file.parent / "device").read_text().strip() in _TPU_CHIPS for file in vendors)
    return on_bus or any(root.glob("dev/accel*")) or any(root.glob("dev/vfio/[0-9]*"))
