"""Memory: what the compiler plans, what was seen, and which errors say that there was not enough of it."""

import errno
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import psutil

# How each platform says it, in whatever case. Never RESOURCE_EXHAUSTED alone: gRPC says that of messages that are too long,
# file systems of open files, clouds of quotas. Memory on the chip (TPU vmem, a GPU's shared memory) is not meant either: a
# kernel whose tile does not fit is a kernel to change, not a batch to make smaller.
_ON_CHIP = "(?:vmem|smem|cmem|sflag)"
_SAYINGS = (
    rf"out of memory(?! (?:in memory space|on|in) {_ON_CHIP})",  # XLA on CPU and GPU, CUDA, NCCL, the TPU compiler
    "out_?of_?memory",  # CUDA_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory
    "CompileTimeHbmOom",  # the TPU compiler's error E1000
    "Hbm usage.*exceeding available bytes",  # the same, TensorCore and SparseCore apart
    r"would exceed memory \(size=\d+\)[^\]]*space=hbm",
    r"attempting to (?:allocate|reserve) .{0,80}that was not possible",  # the TPU runtime, E0100 and E0101
    "failed to allocate request for",  # older jaxlib
    r"failed to allocate \d+ bytes",
    r"exceeds the memory limit of \d+ bytes",  # scratch space of cuDNN and cuFFT
    "_ALLOC(?:ATION)?_FAILED",  # CUBLAS_STATUS_…, CUDNN_STATUS_…
    r"cu(?:blas|solver|sparse|dnn) allocation failed",
    r"std::bad_alloc",
    r"\bMemoryError\b",  # of a worker process, as text
    "cannot allocate memory(?! in static TLS)",  # the operating system; the loader's own is no lack of memory
)
_OUT_OF_MEMORY = re.compile("|".join(_SAYINGS), re.IGNORECASE)


@dataclass(frozen=True)
class MemoryPlan:
    """What a compiled program needs on one device, in bytes.

    Attributes:
      arguments: its inputs.
      outputs: its results.
      temporaries: what it needs in between, at its peak.
      aliased: results that take the place of donated inputs; counted in both of the above.
      code: the program itself, where the compiler says so.
      total: all of it, what is aliased once.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.code - self.aliased


def planned(executable: jax.stages.Compiled) -> MemoryPlan | None:
    """The compiler's plan of a compiled program; None where its platform does not say.

    >>> shape = jax.ShapeDtypeStruct((64, 64), "float32")
    >>> plan = planned(jax.jit(lambda a, b: a @ b).lower(shape, shape).compile())
    >>> plan.arguments, plan.outputs
    (32768, 16384)
    """
    try:
        stats = executable.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    if stats is None:
        return None
    names = ("argument", "output", "temp", "alias", "generated_code")
    return MemoryPlan(
        *(max(0, getattr(stats, f"{name}_size_in_bytes")) for name in names)
    )  # -1: not known


def observed_peak(devices: Iterable[jax.Device]) -> tuple[int | None, str]:
    """The most memory held at once since this process began, and who says so.

    Returns:
      Bytes on the fullest of the devices, where they say so. Else of this process on the host, which on a CPU is the memory
      of the devices too. None where nobody says.
    """
    peaks = [
        peak
        for device in devices
        if (peak := memory_stats(device).get("peak_bytes_in_use")) is not None
    ]
    if peaks:
        return max(peaks), "device: peak_bytes_in_use of the fullest"
    return _host_peak()


def memory_stats(device: jax.Device) -> dict[str, int]:
    """What a device says of its memory; empty where its platform does not count, or it is another host's."""
    try:
        return device.memory_stats() or {}
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return {}


def _host_peak(status: Path = Path("/proc/self/status")) -> tuple[int | None, str]:
    """Linux first: there ``ru_maxrss`` begins with the size of the program that started this one."""
    if (found := _high_water_mark(status)) is not None:
        return found, "host: peak resident memory of this process (VmHWM)"
    try:
        import resource
    except ImportError:  # Windows
        peak = getattr(psutil.Process().memory_info(), "peak_wset", None)
        return peak, "host: peak working set of this process" if peak else "not said"
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(
        resource.RUSAGE_SELF
    ).ru_maxrss * unit, "host: peak resident memory of this process (ru_maxrss)"


def _high_water_mark(status: Path) -> int | None:
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that the memory of a device or of the host did not suffice.

    >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17592186044416 bytes."))
    True
    >>> is_out_of_memory(OSError(28, "No space left on device"))
    False
    """
    return any(_says_so(each) for each in _chain(error))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return True
    return _OUT_OF_MEMORY.search(str(error)) is not None


def _chain(error: BaseException | None, seen: set[int] | None = None) -> Iterator[BaseException]:
    """An error, those of its group, its cause, and what was being handled when it was raised unless it says ``from None``."""
    seen = set() if seen is None else seen
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    context = None if error.__suppress_context__ else error.__context__
    members: tuple[Any, ...] = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for led in (error.__cause__, context, *members):
        yield from _chain(led, seen)
