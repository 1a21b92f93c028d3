"""The devices of a target as its compiler has them, and their memory; they need not be attached."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from experiments.measure.limits import total_memory
from experiments.preflight.result import parse_refusal
from experiments.preflight.targets import Target

# The share of a GPU's memory that JAX takes for programs unless XLA_CLIENT_MEM_FRACTION is set
# (docs.jax.dev, "GPU memory allocation").
GPU_MEMORY_SHARE = 0.75
_TOO_LARGE = (2**30, 256)  # float32: 1 TiB, more than any device has


@functools.cache
def target_devices(target: Target) -> tuple[jax.Device, ...]:
    """The devices, in order; those of a CPU are this machine's.

    The compiler of the target has to be installed, see `libraries.missing`.
    """
    if target.platform == "cpu":
        return tuple(jax.devices()[: target.devices])
    if target.platform == "tpu":
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=target.topology, **target.topology_options
        )
    else:
        topology = topologies.get_topology_desc(
            platform="cuda",
            topology_name=target.topology,
            topology=target.topology,
            target_config=target.description,
        )
    return tuple(topology.devices)


@functools.cache
def available_memory(target: Target, devices: tuple[jax.Device, ...]) -> float | None:
    """Bytes that a program may take on one device; None if unknown.

    A TPU's compiler only tells when it refuses a program that takes far too much.
    """
    if target.platform == "cpu":
        return float(total_memory())
    if target.platform == "gpu":
        return GPU_MEMORY_SHARE * target.memory
    sharding = SingleDeviceSharding(devices[0])
    too_large = jax.ShapeDtypeStruct(_TOO_LARGE, jnp.float32, sharding=sharding)
    try:
        jax.jit(lambda x: x + 1).lower(too_large).compile()
    except jax.errors.JaxRuntimeError as error:
        memory = parse_refusal(str(error))
        return memory[1] if memory else None
    return None
