"""Compiler options by platform, set on our own programs alone and on nothing else of the user's."""

import functools

import jax
import jax.numpy as jnp

# XLA:CPU: matrix products and what feeds them go to the YNNPACK library as one fusion. A small CNN's train step took
# half the time with it (CONTRIBUTING.md, "What was measured").
OPTIONS: dict[str, dict[str, str]] = {
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},
}


@functools.cache
def compiler_options(platform: str) -> dict[str, str]:
    """Those of `OPTIONS` that the installed compiler knows: they are experimental and may go away with a version."""
    return {name: value for name, value in OPTIONS.get(platform, {}).items() if _known(name, value)}


def _known(name: str, value: str) -> bool:
    try:
        jax.jit(lambda x: x + 1, compiler_options={name: value}).lower(jnp.float32(0)).compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True
