"""Memory of a program: the compiler's plan, the observed peak, and out-of-memory errors."""

import errno
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import psutil

# How each platform words an out-of-memory error, case ignored. RESOURCE_EXHAUSTED alone is not
# one: gRPC says it of messages that are too long, file systems of open files, clouds of quotas.
# Memory on the chip (TPU vmem, a GPU's shared memory) is not meant either: if the tile of a kernel
# does not fit, the kernel must change, not the batch size.
_ON_CHIP = "(?:vmem|smem|cmem|sflag)"
_PATTERNS = (
    # XLA on CPU and GPU, CUDA, NCCL, the TPU compiler
    rf"out of memory(?! (?:in memory space|on|in) {_ON_CHIP})",
    "out_?of_?memory",  # CUDA_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory
    "CompileTimeHbmOom",  # the TPU compiler's error E1000
    "Hbm usage.*exceeding available bytes",  # the same, TensorCore and SparseCore apart
    r"would exceed memory \(size=\d+\)[^\]]*space=hbm",
    # the TPU runtime, E0100 and E0101
    r"attempting to (?:allocate|reserve) .{0,80}that was not possible",
    "failed to allocate request for",  # older jaxlib
    r"failed to allocate \d+ bytes",
    r"exceeds the memory limit of \d+ bytes",  # scratch space of cuDNN and cuFFT
    "_ALLOC(?:ATION)?_FAILED",  # CUBLAS_STATUS_…, CUDNN_STATUS_…
    r"cu(?:blas|solver|sparse|dnn) allocation failed",
    r"std::bad_alloc",
    r"\bMemoryError\b",  # of a worker process, as text
    # the operating system; the loader's message about static TLS is not a lack of memory
    "cannot allocate memory(?! in static TLS)",
)
_OUT_OF_MEMORY = re.compile("|".join(_PATTERNS), re.IGNORECASE)


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a compiled program needs on one device, in bytes.

    Attributes:
      arguments: its inputs.
      outputs: its results.
      temporaries: the peak of its intermediate values.
      aliased: results that reuse the memory of donated inputs; part of both of the above.
      code: the program itself, where the compiler reports it.
      total: all of it, aliased memory counted once.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.code - self.aliased


def memory_plan(executable: jax.stages.Compiled) -> MemoryPlan | None:
    """The compiler's memory plan for a program; None if its platform does not report it.

    >>> shape = jax.ShapeDtypeStruct((64, 64), "float32")
    >>> plan = memory_plan(jax.jit(lambda a, b: a @ b).lower(shape, shape).compile())
    >>> plan.arguments, plan.outputs
    (32768, 16384)
    """
    try:
        stats = executable.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    if stats is None:
        return None

    def size(name: str) -> int:
        return max(0, getattr(stats, f"{name}_size_in_bytes"))  # -1 if unknown

    return MemoryPlan(
        arguments=size("argument"),
        outputs=size("output"),
        temporaries=size("temp"),
        aliased=size("alias"),
        code=size("generated_code"),
    )


def observed_peak(devices: Iterable[jax.Device]) -> tuple[int | None, str]:
    """Peak memory use since this process started, and its source.

    Returns:
      Bytes on the device that used most, where the devices report it. Otherwise those of this
      process on the host, whose memory is also that of CPU devices. None if nothing reports it.
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
    """The memory statistics of a device.

    Returns:
      Empty if its platform has none, or if the device belongs to another host.
    """
    try:
        return device.memory_stats() or {}
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return {}


def _host_peak(status: Path = Path("/proc/self/status")) -> tuple[int | None, str]:
    """Linux's own figure first: ``ru_maxrss`` starts at the size of the parent process there."""
    if (peak := _high_water_mark(status)) is not None:
        return peak, "host: peak resident memory of this process (VmHWM)"
    try:
        import resource
    except ImportError:  # Windows
        peak = getattr(psutil.Process().memory_info(), "peak_wset", None)
        return peak, "host: peak working set of this process" if peak else "unknown"
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return peak, "host: peak resident memory of this process (ru_maxrss)"


def _high_water_mark(status: Path) -> int | None:
    try:
        size = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(size[1]) * 1024 if size else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that caused it, means that a device or the host ran out of memory.

    >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17592 bytes."))
    True
    >>> is_out_of_memory(OSError(28, "No space left on device"))
    False
    """
    return any(_matches(member) for member in _chain(error))


def _matches(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return _OUT_OF_MEMORY.search(str(error)) is not None


def _chain(error: BaseException | None, visited: set[int] | None = None) -> Iterator[BaseException]:
    """An error, its group's members, its cause, and its context unless ``from None`` hides it."""
    visited = set() if visited is None else visited
    if error is None or id(error) in visited:
        return
    visited.add(id(error))
    yield error
    context = None if error.__suppress_context__ else error.__context__
    members: tuple[Any, ...] = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for origin in (error.__cause__, context, *members):
        yield from _chain(origin, visited)
