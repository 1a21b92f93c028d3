"""Compiler options by platform, for the programs that jaxcnn compiles and no others."""

import functools

import jax
import jax.numpy as jnp

# XLA:CPU passes matrix products, fused with the operations before them, to the YNNPACK library.
# With it the train step of a small CNN took half the time (CONTRIBUTING.md, "What was measured").
OPTIONS: dict[str, dict[str, str]] = {
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},
}


@functools.cache
def compiler_options(platform: str) -> dict[str, str]:
    """The entries of `OPTIONS` for a platform that the installed compiler supports.

    The options are experimental: a later version of the compiler may not have them.

    >>> compiler_options("tpu")
    {}
    """
    options = OPTIONS.get(platform, {})
    return {name: value for name, value in options.items() if _is_supported(name, value)}


def _is_supported(name: str, value: str) -> bool:
    try:
        jax.jit(lambda x: x + 1, compiler_options={name: value}).lower(jnp.float32(0)).compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True
