"""Which chips this machine has, found without JAX and without libtpu."""

import platform
from pathlib import Path

_GOOGLE_VENDOR_ID = "0x1ae0"
# Google's disks and network cards are on the bus as well, so the vendor alone does not suffice.
# These are the PCI ids of TPU v2 and v3 up to TPU 7x in jax/_src/hardware_utils.py.
_TPU_DEVICE_IDS = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")


def has_tpu(root: Path = Path("/")) -> bool:
    """Whether this machine has a TPU, by the devices on the PCI bus.

    Args:
      root: the folder that contains ``sys`` and ``dev``.
    """
    google_devices = (
        vendor.parent / "device"
        for vendor in root.glob("sys/bus/pci/devices/*/vendor")
        if vendor.read_text().strip() == _GOOGLE_VENDOR_ID
    )
    on_bus = any(device.read_text().strip() in _TPU_DEVICE_IDS for device in google_devices)
    return on_bus or any(root.glob("dev/accel*")) or any(root.glob("dev/vfio/[0-9]*"))


def cpu_name(root: Path = Path("/")) -> str:
    """The product name of the processor, as the operating system reports it.

    Virtual machines often hide the product and report a bare "AMD EPYC", which a Zen 4 and a Zen 5
    share although one computes twice as fast; such a name is followed by family and model.

    Args:
      root: the folder that contains ``proc``.
    """
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
    name = fields.get("model name") or platform.processor() or platform.machine()
    is_product = any(character.isdigit() for character in name)
    if is_product or not {"cpu family", "model"} <= fields.keys():
        return name
    return f"{name} family {fields['cpu family']} model {fields['model']}"
