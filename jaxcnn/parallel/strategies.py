"""The strategies by name, and what can be asked of one before it is made."""

from collections.abc import Sequence

import jax

from jaxcnn.errors import InputError, require_known
from jaxcnn.parallel.data import Data, Fsdp
from jaxcnn.parallel.jit import Jit
from jaxcnn.parallel.mesh import mesh_shape
from jaxcnn.parallel.mesh_strategy import MeshStrategy
from jaxcnn.parallel.pipeline import Pipeline
from jaxcnn.parallel.pmap import Pmap
from jaxcnn.parallel.rules import Rule
from jaxcnn.parallel.strategy import Strategy
from jaxcnn.parallel.tensor import DataTensor, Tensor

STRATEGIES: dict[str, type[Strategy]] = {
    "jit": Jit,
    "pmap": Pmap,
    "data": Data,
    "fsdp": Fsdp,
    "tensor": Tensor,
    "data_tensor": DataTensor,
    "pipeline": Pipeline,
}
FOR_ANY_NETWORK = tuple(name for name, kind in STRATEGIES.items() if kind.any_network)
REFERENCE = "jit"  # the strategy whose results every other one must reproduce
AUTO = "auto"


def resolve(name: str, device_count: int) -> str:
    """The key of `STRATEGIES` that `name` stands for; ``auto`` depends on the number of devices.

    Raises:
      InputError: an unknown name.

    >>> resolve("auto", 1), resolve("auto", 8), resolve("pmap", 8)
    ('jit', 'data', 'pmap')
    """
    if name == AUTO:
        return "jit" if device_count == 1 else "data"
    require_known("strategy", name, STRATEGIES)
    return name


def device_count(name: str, available: int) -> int:
    """The number of devices that a strategy, or ``auto``, uses out of `available`.

    >>> device_count("jit", 8), device_count("auto", 8)
    (1, 8)
    """
    return STRATEGIES[resolve(name, available)].device_count(available)


def batch_multiple(name: str, available: int, mesh: str | None = None) -> int:
    """The number that a batch size of a strategy, or ``auto``, must be a multiple of.

    >>> batch_multiple("jit", 8), batch_multiple("pmap", 8), batch_multiple("data_tensor", 8, "2x4")
    (1, 8, 2)
    """
    mesh_sizes(name, available, mesh)
    return STRATEGIES[resolve(name, available)].batch_multiple(available, mesh)


def state_copies(name: str, available: int) -> int:
    """The number of devices that hold a copy of the train state, or a share of it, by strategy.

    >>> state_copies("data", 8), state_copies("pipeline", 8)
    (8, 1)
    """
    return STRATEGIES[resolve(name, available)].state_copies(available)


def mesh_sizes(name: str, available: int, mesh: str | None = None) -> dict[str, int]:
    """The number of devices along each mesh axis of a strategy; empty for one without a mesh.

    Raises:
      InputError: an unknown strategy, or a mesh that does not match the devices.

    >>> mesh_sizes("data_tensor", 8), mesh_sizes("jit", 8)
    ({'data': 4, 'tensor': 2}, {})
    """
    axes = mesh_axes(resolve(name, available))
    if not axes and mesh is not None:
        raise InputError(
            f"mesh {mesh!r}: strategy {name!r} has no mesh; choose "
            f"{', '.join(filter(mesh_axes, STRATEGIES))}, or leave the mesh out"
        )
    return dict(zip(axes, mesh_shape(axes, available, mesh), strict=True)) if axes else {}


def mesh_axes(name: str) -> tuple[str, ...]:
    """The axes of the mesh of a strategy; empty for one without a mesh.

    >>> mesh_axes("data_tensor"), mesh_axes("jit")
    (('data', 'tensor'), ())
    """
    require_known("strategy", name, STRATEGIES)
    kind = STRATEGIES[name]
    return kind.axes if issubclass(kind, MeshStrategy) else ()


def default_rules(name: str) -> tuple[Rule, ...]:
    """The rules by which a strategy divides the train state; empty if it does not."""
    require_known("strategy", name, STRATEGIES)
    kind = STRATEGIES[name]
    return kind.default_rules if issubclass(kind, MeshStrategy) else ()


def strategy(
    name: str,
    devices: Sequence[jax.Device] | None = None,
    *,
    mesh: str | None = None,
    rules: Sequence[Rule] | None = None,
) -> Strategy:
    """The strategy called `name` over the devices given, or over all devices.

    Args:
      name: a key of `STRATEGIES`, or ``auto``, see `resolve`.
      devices: in the order in which they are on the mesh.
      mesh: the number of devices along each axis of the mesh, such as ``2x4``; by default
        `mesh_shape` chooses.
      rules: which axes of the train state are divided, in place of the strategy's own; see `Rule`.

    Raises:
      InputError: an unknown name, a mesh that does not match the devices, or a mesh or rules for a
        strategy that has none.

    >>> from jaxcnn import models, training
    >>> import jax.numpy as jnp, optax
    >>> state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    >>> pmap = strategy("pmap")
    >>> batch = {"image": jnp.ones((8, 28, 28, 1)), "label": jnp.arange(8)}
    >>> state, metrics = pmap.compile(step)(pmap.place(state), pmap.place_batch(batch))
    >>> int(metrics["count"])
    8
    """
    devices = tuple(jax.devices() if devices is None else devices)
    if not devices:
        raise InputError("devices is empty: give at least one, or leave it out for all")
    name = resolve(name, len(devices))
    kind = STRATEGIES[name]
    if issubclass(kind, MeshStrategy):
        return kind(devices, mesh, rules)
    mesh_sizes(name, len(devices), mesh)
    if rules is not None:
        raise InputError(f"strategy {name!r} keeps the train state whole: leave the rules out")
    return kind(devices)
