"""Options of XLA for programs that run once."""

import jax

# Compile in a quarter of the time. Not every supported jaxlib has all of them.
_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def _is_known(name: str) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: _OPTIONS[name]})()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


UNOPTIMIZED = {name: value for name, value in _OPTIONS.items() if _is_known(name)}
# The same for all programs of a process, in its environment.
UNOPTIMIZED_FLAGS = " ".join(f"--{name}={value}".lower() for name, value in UNOPTIMIZED.items())
