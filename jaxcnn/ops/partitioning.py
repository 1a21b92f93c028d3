"""CPU programs that the compiler divides between devices, with calls that it cannot divide.

For the compiler, a foreign function call is opaque: it would give each device the whole batch. For
an operation of which the dimensions are known here, it asks instead how to divide it: along which
dimensions each device may compute its own part, and over which it must sum.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array, lax
from jax._src import dispatch
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from jaxcnn.ops import native


@dataclass(frozen=True)
class Dimensions:
    """What the dimensions of an operation's operands and result are.

    Dimensions with the same name are divided alike. One that the result does not have is summed
    over. A dimension called None is not divided.

    Attributes:
      operands: the names of each operand's dimensions.
      result: those of the result.
    """

    operands: tuple[tuple[str | None, ...], ...]
    result: tuple[str | None, ...]

    def sharding_rule(self) -> tuple[str, dict[str, tuple[str, ...]]]:
        """The rule for `custom_partitioning`, in its notation."""
        undivided: list[str] = []

        def text(names: Sequence[str | None]) -> str:
            labels = []
            for name in names:
                if name is None:
                    undivided.append(f"undivided{len(undivided)}")
                labels.append(name or undivided[-1])
            return " ".join(labels)

        rule = ", ".join(map(text, self.operands)) + " -> " + text(self.result)
        summed = tuple(name for name in self.names() if name not in self.result)
        return rule, {"reduction_factors": summed, "need_replication_factors": tuple(undivided)}

    def names(self) -> list[str]:
        """All names, in the order in which they first appear."""
        everything = (name for names in (*self.operands, self.result) for name in names)
        return list(dict.fromkeys(name for name in everything if name))


def partitioned(
    function: Callable[..., Array], dimensions: Dimensions, mesh: AbstractMesh
) -> Callable[..., Array]:
    """The function, computed by each device for its part of the operands.

    Args:
      function: of arrays, with a single result. Its parts must be computed alike.
      dimensions: of its operands and its result.
      mesh: of the program.
    """

    def partition(mesh: Mesh, operands, result):
        axes = _axes_of_dimensions(mesh, dimensions, operands, result)

        def sharding(names: Sequence[str | None]) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*(axes.get(name) for name in names)))

        summed = [axis for name, of in axes.items() if name not in dimensions.result for axis in of]

        def compute_part(*parts: Array) -> Array:
            part = function(*parts)
            return lax.psum(part, tuple(summed)) if summed else part

        return (
            mesh,
            compute_part,
            sharding(dimensions.result),
            tuple(map(sharding, dimensions.operands)),
        )

    rule, factors = dimensions.sharding_rule()
    call = custom_partitioning(function)
    call.def_partition(partition, sharding_rule=rule, **factors)

    def call_with_whole_dimensions(*operands: Array) -> Array:
        # `custom_partitioning` fails where an operand's dimension is divided by a part of a mesh
        # axis, as that of two groups of channels is by eight devices.
        pairs = zip(operands, dimensions.operands, strict=True)
        return call(*(_with_whole_dimensions(array, names, mesh) for array, names in pairs))

    return call_with_whole_dimensions


def _with_whole_dimensions(array: Array, names: Sequence[str | None], mesh: AbstractMesh) -> Array:
    """The array with the dimensions that have no name undivided.

    Along explicit mesh axes it is unchanged: JAX divides dimensions by whole axes only.
    """
    if AxisType.Auto not in mesh.axis_types:
        return array
    spec = PartitionSpec(*(PartitionSpec.UNCONSTRAINED if name else None for name in names))
    return lax.with_sharding_constraint(array, NamedSharding(mesh, spec))


def is_partitioned(context: mlir.LoweringRuleContext) -> bool:
    """Whether the compiler divides this operation between devices.

    It does so in a program for several devices, but not inside `jax.shard_map` and `jax.pmap`,
    where each device computes the operation alone, on its own data.
    """
    axes: Any = context.module_context.axis_context
    if hasattr(axes, "manual_axes"):
        return not set(axes.mesh.axis_names) <= set(axes.manual_axes)
    return getattr(axes, "num_devices", 1) != 1


def mesh_of(context: mlir.LoweringRuleContext) -> AbstractMesh | None:
    """How the devices of a program that is partitioned are arranged; None if it is not known."""
    axes: Any = context.module_context.axis_context
    return getattr(axes, "abstract_mesh", None)


def for_known_devices(array: Array) -> Array:
    """Returns the array unchanged; JAX tells the lowering of the program which devices run it.

    `custom_partitioning` needs to know. JAX looks through a program for the operations that do
    before it lowers any, and our operations become such ones only then. Such a program cannot be
    lowered for an abstract mesh, so nothing is done where no kernels may be called.
    """
    return _known_devices_p.bind(array) if native.available() else array


_known_devices_p = Primitive("for_known_devices")
_known_devices_p.def_impl(lambda array: array)
_known_devices_p.def_abstract_eval(lambda array: array)
ad.deflinear2(_known_devices_p, lambda cotangent, array: [cotangent])
batching.defvectorized(_known_devices_p)
mlir.register_lowering(_known_devices_p, lambda context, array: [array])
dispatch.prim_requires_devices_during_lowering.add(_known_devices_p)


def _axes_of_dimensions(
    mesh: Mesh, dimensions: Dimensions, operands: Sequence[jax.ShapeDtypeStruct], result
) -> dict[str, tuple[str, ...]]:
    """The mesh axes that divide each named dimension, each axis at most once.

    The result's sharding has priority over those of the operands. A dimension that its devices
    cannot share equally is not divided.
    """
    axes: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    for array, names in zip(
        (result, *operands), (dimensions.result, *dimensions.operands), strict=True
    ):
        spec = tuple(array.sharding.spec) + (None,) * len(names)
        for size, name, entry in zip(array.shape, names, spec, strict=False):
            dividing = entry if isinstance(entry, tuple) else (entry,) if entry else ()
            devices = math.prod(mesh.shape[axis] for axis in dividing)
            is_new = name is not None and name not in axes and not used & set(dividing)
            if dividing and is_new and size % devices == 0:
                axes[name] = dividing
                used |= set(dividing)
    return axes
