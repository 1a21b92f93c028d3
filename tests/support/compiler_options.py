"""Options of XLA for programs that run once."""

import jax

# Name, value, default. With these values, programs compile in a third of the time. One thread
# generates the code of a program, as other workers use the other processors.
_OPTIONS: list[tuple[str, int | bool, int | bool]] = [
    ("xla_backend_optimization_level", 0, 3),
    ("xla_llvm_disable_expensive_passes", True, False),
    ("xla_cpu_parallel_codegen_split_count", 1, 32),
]
if jax.__version_info__ < (0, 11):  # a jaxlib ends the process at an option that it does not know
    _OPTIONS.append(("xla_cpu_use_fusion_emitters", False, True))

UNOPTIMIZED_FLAGS = " ".join(f"--{name}={value}".lower() for name, value, _ in _OPTIONS)
# For `jax.jit`: the defaults, for programs whose results depend on them.
OPTIMIZED = {name: default for name, _, default in _OPTIONS}
