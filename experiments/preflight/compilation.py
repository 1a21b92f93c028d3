"""Compiles a lowered program as thoroughly as a plan of its memory needs."""

import contextlib
from pathlib import Path
from typing import Any

import jax

from experiments.preflight.result import LOWEST
from experiments.preflight.targets import Target

# What JAX's lowest optimization level leaves as it is: the code of a GPU's kernels.
_QUICK_GPU_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_gpu_disable_gpuasm_optimizations": True,
}


def compile_lowered(
    lowered: jax.stages.Lowered, target: Target, level: str, kernels: Path | None = None
) -> jax.stages.Compiled:
    """Compiles a program for a target that need not be attached.

    The code of a GPU's kernels is generated after the memory is planned, and is not run. At the
    lowest level it is therefore not optimized, and kernels that another program has too are not
    generated again, even if they were generated for another GPU. Generating them is three quarters
    of the time.

    Args:
      lowered: lowered for the devices of the target.
      target: where it would run.
      level: `LOWEST`, or empty for the compiler's default.
      kernels: a file of kernels, to which XLA adds those of this program. None: all are generated.

    Raises:
      jax.errors.JaxRuntimeError: the compiler refuses the program.
    """
    jax.config.update("jax_optimization_level", level or "UNKNOWN")
    if target.platform != "gpu" or level != LOWEST:
        return lowered.compile()
    if kernels is not None:
        reuse = {
            "xla_gpu_kernel_cache_file": str(kernels),
            "xla_gpu_enable_llvm_module_compilation_parallelism": True,
        }
        # It also fails if the file cannot be read or written: then without it.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            return lowered.compile(compiler_options=_QUICK_GPU_OPTIONS | reuse)
    return lowered.compile(compiler_options=_QUICK_GPU_OPTIONS)
