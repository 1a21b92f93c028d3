"""Microbenchmarks: the primitive operations that the study `kernels` times, a subject per file."""

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

__all__ = ["DTYPES", "KERNELS", "PLATFORMS", "PRESETS", "Kernel", "select_kernels"]

# By subject, a function from the platform to its kernels. Sizes depend on the platform; kernels of
# the same name are the same work everywhere.
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


def select_kernels(preset: str, platform: str) -> list[Kernel]:
    """The kernels to time, in order.

    Args:
      preset: ``quick`` or ``full``.
      platform: ``cpu``, ``gpu`` or ``tpu``.

    Raises:
      InputError: an unknown preset or platform.

    >>> [kernel.name for kernel in select_kernels("quick", "cpu")][:2]
    ['dispatch', 'divisions-at_once-8100']
    """
    require_known("preset", preset, PRESETS)
    require_known("platform", platform, PLATFORMS)
    kernels = [kernel for list_kernels in KERNELS.values() for kernel in list_kernels(platform)]
    return [kernel for kernel in kernels if preset == "full" or kernel.quick]
