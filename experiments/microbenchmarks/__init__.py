"""The kernels: one file a subject, the operations that the study of the same name times."""

from collections.abc import Callable

from experiments.microbenchmarks import (
    convolution,
    copies,
    layers,
    matmul,
    memory_bandwidth,
    overheads,
    rungs,
)
from experiments.microbenchmarks.kernel import DTYPES, PRESETS, Kernel
from jaxcnn.errors import require_known

__all__ = ["DTYPES", "KERNELS", "PRESETS", "Kernel", "cases"]

# For a platform its list, whose sizes suit it: kernels of one name are the same work everywhere.
KERNELS: dict[str, Callable[[str], list[Kernel]]] = {
    "overheads": overheads.kernels,
    "memory bandwidth": memory_bandwidth.kernels,
    "copies": copies.kernels,
    "matrix products": matmul.kernels,
    "rungs": rungs.kernels,
    "convolutions": convolution.kernels,
    "layers": layers.kernels,
}
PLATFORMS = ("cpu", "gpu", "tpu")


def cases(preset: str, platform: str) -> list[Kernel]:
    """The kernels to time, in order.

    Args:
      preset: ``quick`` or ``full``.
      platform: ``cpu``, ``gpu`` or ``tpu``.

    Raises:
      InputError: an unknown preset or platform.

    >>> [kernel.name for kernel in cases("quick", "cpu")][:2]
    ['dispatch', 'divisions-at_once-8100']
    """
    require_known("preset", preset, PRESETS)
    require_known("platform", platform, PLATFORMS)
    found = [kernel for kernels in KERNELS.values() for kernel in kernels(platform)]
    return [kernel for kernel in found if preset in ("full", kernel.preset)]
