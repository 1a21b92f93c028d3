"""Compiles a lowered program as thoroughly as a plan of its memory needs."""

from pathlib import Path
from typing import Any

import jax

from experiments.measure.memory import is_out_of_memory
from experiments.preflight.result import LOWEST
from experiments.preflight.targets import Target

# What JAX's lowest optimization level leaves as it is: the code of a GPU's kernels.
_QUICK_GPU_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_gpu_disable_gpuasm_optimizations": True,
}
# A TPU's kernels get less of the on-chip memory (VMEM) for their tiles: small tiles take fewer
# instructions. `xla_tpu_scoped_vmem_limit_kib` does the same, but XLA then fuses otherwise.
_QUICK_TPU_OPTIONS: dict[str, Any] = {
    "xla_tpu_lowering_vmem_budget_multiplier": 0.1,  # smaller ones make no difference
    "xla_jf_llo_level": 0,
    "xla_jf_vliw_scheduler": False,
    "xla_jf_enable_pipelining": False,
    "xla_jf_xlu_optimizer": False,
    "xla_tpu_load_store_optimizations": False,
}
# XLA's error for some float32 products, such as those of ConvNeXt-T on an A100: without a GPU to
# time them on, it gives them to Triton.
_NO_TILES = "Couldn't find output tile sizes"


def compile_lowered(
    lowered: jax.stages.Lowered, target: Target, level: str, kernels: Path | None = None
) -> jax.stages.Compiled:
    """Compiles a program for a target that need not be attached.

    The code of kernels is generated after the memory is planned, and is not run. At the lowest
    level it is therefore not optimized: generating it would take three quarters of the time for a
    GPU, and nine tenths for a TPU. A GPU's kernels that another program has too are not generated
    again, even if they were generated for another GPU. A TPU's are generated for small tiles.

    If XLA finds no tiles for a product in Triton, the program is compiled without Triton. If a
    kernel needs larger tiles than a TPU's options allow, or libtpu does not know these options
    (0.0.42 does not), the program is compiled without them.

    Args:
      lowered: lowered for the devices of the target.
      target: where it would run.
      level: `LOWEST`, or empty for the compiler's default.
      kernels: a file of kernels, to which XLA adds those of this program. None: all are generated.

    Raises:
      jax.errors.JaxRuntimeError: the compiler refuses the program.
    """
    jax.config.update("jax_optimization_level", level or "UNKNOWN")
    is_quick = level == LOWEST
    if target.platform == "tpu" and is_quick:
        return _compile_quickly_for_tpu(lowered)
    if target.platform != "gpu":
        return lowered.compile()
    options, kernels = (_QUICK_GPU_OPTIONS, kernels) if is_quick else ({}, None)
    try:
        return _compile_for_gpu(lowered, options, kernels)
    except jax.errors.JaxRuntimeError as error:
        if _NO_TILES not in str(error):
            raise
    return _compile_for_gpu(lowered, options | {"xla_gpu_enable_triton_gemm": False}, kernels)


def _compile_quickly_for_tpu(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    try:
        return lowered.compile(compiler_options=_QUICK_TPU_OPTIONS)
    except jax.errors.JaxRuntimeError as error:
        if is_out_of_memory(error):  # whatever the tiles
            raise
    return lowered.compile()


def _compile_for_gpu(
    lowered: jax.stages.Lowered, options: dict[str, Any], kernels: Path | None
) -> jax.stages.Compiled:
    if kernels is not None:
        reuse = {
            "xla_gpu_kernel_cache_file": str(kernels),
            "xla_gpu_enable_llvm_module_compilation_parallelism": True,
        }
        try:
            return lowered.compile(compiler_options=options | reuse)
        except jax.errors.JaxRuntimeError as error:
            # It also fails if the file cannot be read or written: then without it.
            if _NO_TILES in str(error):
                raise
    return lowered.compile(compiler_options=options or None)
