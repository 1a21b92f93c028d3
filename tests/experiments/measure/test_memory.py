"""Planned and observed memory by hand; the wording of out-of-memory errors on each platform."""

import errno
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.measure import memory
from experiments.measure.memory import MemoryPlan, is_out_of_memory, memory_plan, observed_peak

MATRIX = jax.ShapeDtypeStruct((64, 64), "float32")  # 16384 bytes


def compile_function(function, *args, **options):
    return jax.jit(function, **options).lower(*args).compile()


def test_plan_of_a_product():
    plan = memory_plan(compile_function(lambda a, b: a @ b, MATRIX, MATRIX))
    assert (plan.arguments, plan.outputs, plan.aliased) == (2 * 16384, 16384, 0)
    assert plan.total == 3 * 16384 + plan.temporaries + plan.code


def test_donated_memory_counts_once():
    plan = memory_plan(compile_function(lambda a: a + 1, MATRIX, donate_argnums=0))
    assert (plan.arguments, plan.outputs, plan.aliased) == (16384, 16384, 16384)
    assert plan.total == 16384 + plan.temporaries + plan.code


def test_total_of_a_plan_by_hand():
    plan = MemoryPlan(arguments=1000, outputs=200, temporaries=30, aliased=100, code=4)
    assert plan.total == 1134


@pytest.mark.parametrize(
    "analysis", [None, NotImplementedError(), jax.errors.JaxRuntimeError("INTERNAL: no")]
)
def test_there_is_no_plan_where_the_platform_has_none(analysis):
    executable = SimpleNamespace(memory_analysis=lambda: return_or_raise(analysis))
    assert memory_plan(executable) is None


def test_an_unknown_code_size_counts_as_zero():
    names = ("argument", "output", "temp", "alias", "generated_code")
    stats = SimpleNamespace(
        **{f"{n}_size_in_bytes": size for n, size in zip(names, (8, 4, 2, 1, -1), strict=True)}
    )
    assert memory_plan(SimpleNamespace(memory_analysis=lambda: stats)) == MemoryPlan(8, 4, 2, 1, 0)


def return_or_raise(value):
    if isinstance(value, Exception):
        raise value
    return value


def device(stats):
    return SimpleNamespace(memory_stats=lambda: return_or_raise(stats))


def test_the_peak_is_that_of_the_fullest_device():
    devices = [device({"peak_bytes_in_use": 5}), device({"peak_bytes_in_use": 7}), device(None)]
    assert observed_peak(devices) == (7, "device: peak_bytes_in_use of the fullest")


@pytest.mark.parametrize(
    "stats", [None, {}, {"bytes_in_use": 3}, NotImplementedError(), jax.errors.JaxRuntimeError("x")]
)
def test_the_host_peak_stands_in_for_a_device_without_statistics(stats):
    peak, source = observed_peak([device(stats)])
    assert peak > 2**20
    assert source.startswith("host: ")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_host_peak_includes_memory_that_was_freed():
    code = (
        "import numpy as np; from experiments.measure import memory;"
        "before = memory._host_peak()[0];"
        "np.ones(25_000_000); print(before, *memory._host_peak())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    before, after = output.split()[:2]
    assert int(after) - int(before) == pytest.approx(200e6, rel=0.2)
    assert "VmHWM" in output


def test_host_peak_without_proc(tmp_path):
    peak, source = memory._host_peak(tmp_path / "none")
    assert peak > 2**20
    assert "ru_maxrss" in source


# Actual messages: on a CPU, of the TPU compiler, from openxla.org/xla/errors (E…), in jaxlib, in
# issues of the projects named; if none is named, composed around the documented name of the error.
OUT_OF_MEMORY = {
    "CPU, jax 0.10 and 0.12": "RESOURCE_EXHAUSTED: Out of memory allocating 17592186044416 bytes.",
    "jax#13428": "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.",
    "GPU, old, jax#788": (
        "Resource exhausted: Out of memory while trying to allocate 5520758552 bytes."
    ),
    "CUDA, jax#4994": (
        "Internal: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ),
    "CUDA runtime, jax#17217": "cudaErrorMemoryAllocation : out of memory",
    "HIP": "INTERNAL: hipMalloc failed: hipErrorOutOfMemory",
    "cuBLAS, tensorflow#45423": "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
    "cuDNN, tensorflow#38565": "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN 9": "INTERNAL: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cuSOLVER, jaxlib": "cuSolver allocation failed",
    "cuFFT scratch": (
        "failed to initialize batched cufft plan with customized allocator: Allocating "
        "8000000160 bytes exceeds the memory limit of 4294967296 bytes."
    ),
    "NCCL, openxla/xla#7201": (
        "NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry (may be "
        "unrelated) 'Cuda failure 2 'out of memory''."
    ),
    "TPU, E0100": (
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 8.00M. That "
        "was not possible. There are 6.43M free.; (0x0x1_HBM0)"
    ),
    "TPU program, E0101": (
        "RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 29.49G at "
        "the bottom of memory. That was not possible. There are 147.64M free, 0B reserved, and "
        "147.64M reservable."
    ),
    "TPU compiler, E1000": (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
        "hbm. Used 49.34G of 32.00G hbm. Exceeded hbm capacity by 17.34G."
    ),
    "TPU compiler, Enzyme-JAX#2422": (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error."
    ),
    "libtpu 0.0.51, v5e": (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
        "memory required for HLO temporaries (33.54G) exceeds available HBM (15.75G). HLO "
        "module: jit__lambda."
    ),
    "SparseCore, E1000": (
        "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.82G, SparseCore Hbm usage 174.10G, "
        "exceeding available bytes: 95.74G"
    ),
    "mesh-transformer-jax#209": (
        "RESOURCE_EXHAUSTED: Failed to allocate request for 256.00MiB (268435456B) on device "
        "ordinal 0"
    ),
    "C++": "std::bad_alloc",
    "a worker": "RESOURCE_EXHAUSTED: MemoryError: Unable to allocate 1.00 GiB for an array",
    "Linux": "[Errno 12] Cannot allocate memory",
}

OTHER_ERRORS = {
    "gRPC, grpc.io#1254": (
        "RESOURCE_EXHAUSTED: Received message larger than max (17777780 vs. 4194304)"
    ),
    "a quota": (
        "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read requests' of service "
        "'storage.googleapis.com'"
    ),
    "open files, tensorflow/io#1682": "RESOURCE_EXHAUSTED: part-24885.parquet; Too many open files",
    "a full disk": "[Errno 28] No space left on device",
    "a full disk, as XLA has it": "RESOURCE_EXHAUSTED: /tmp/checkpoint/3; No space left on device",
    "a GPU tile, jax#20008": (
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 4194304, available: "
        "101376"
    ),
    "a TPU kernel's tile, pytorch/xla#9524": (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
        "vmem. Used 32.42M of 16.00M vmem. Exceeded vmem capacity by 16.42M"
    ),
    "a TPU kernel's tile, E1001": (
        "RESOURCE_EXHAUSTED: Allocation (size=134217728) would exceed memory (size=67108864) :: "
        "#allocation25 [shape = 'u8[134217728]{0}', space=vmem, size = 0x8000000, tag = 'scoped "
        "memory for kernel.2']"
    ),
    "an illegal access": (
        "INTERNAL: Failed to launch CUDA kernel: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory "
        "access"
    ),
    "a wrong buffer, E0102": (
        "INVALID_ARGUMENT: Executable(jit_step) expected parameter 2482 of size 5242880 but got "
        "buffer with incompatible size 1638400"
    ),
    "the loader": "libgomp.so.1: cannot allocate memory in static TLS block",
    "another error": "loss is not finite at step 3",
}


@pytest.mark.parametrize("text", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_out_of_memory_messages(text):
    assert is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize("text", OTHER_ERRORS.values(), ids=OTHER_ERRORS)
def test_other_messages(text):
    assert not is_out_of_memory(RuntimeError(text))


def test_actual_allocations_that_fail():
    """An array of a pebibyte in JAX, in NumPy and in Python."""
    for attempt in (
        lambda: jnp.zeros(2**50, "int8").block_until_ready(),
        lambda: np.ones(2**50, "int8"),
        lambda: bytearray(2**60),
    ):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            attempt()
        assert is_out_of_memory(caught.value)


def test_errors_recognized_by_type():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(OSError(errno.ENOMEM, "kein Speicher"))
    assert not is_out_of_memory(OSError(errno.ENOSPC, "voll"))


def raise_while_handling(first, second, **options):
    """Raises `second` while `first` is handled, with or without it as its cause; returns it."""
    try:
        try:
            raise first
        except BaseException as error:
            if "cause" in options:
                raise second from (error if options["cause"] else None)
            raise second  # noqa: B904
    except BaseException as error:
        return error


def test_causes_contexts_and_groups_are_searched():
    assert is_out_of_memory(
        raise_while_handling(MemoryError(), ValueError("step 3 failed"), cause=True)
    )
    assert is_out_of_memory(raise_while_handling(MemoryError(), ValueError("step 3 failed")))
    assert not is_out_of_memory(
        raise_while_handling(MemoryError(), ValueError("step 3 failed"), cause=False)
    )  # raised from None
    assert not is_out_of_memory(raise_while_handling(KeyError("a"), ValueError("b")))
    assert is_out_of_memory(
        ExceptionGroup("two workers", [ValueError("a"), ExceptionGroup("one", [MemoryError()])])
    )


def test_circular_contexts_end():
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert not is_out_of_memory(first)
