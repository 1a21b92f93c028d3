"""Rules that say which axis of each array of a train state is divided among devices."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jaxcnn.errors import InputError, require_known
from jaxcnn.training.state import Shapes

DATA, TENSOR = "data", "tensor"  # mesh axes
Path = tuple[str, ...]

# Of `TrainState`, by the kind of their arrays.
_FIELDS = {"parameter": ("params", "frozen"), "statistic": ("model_state",)}
_NAMES = 8  # that a message lists


@dataclass(frozen=True)
class LargestAxis:
    """Divides the largest axis that the devices can share equally, of equal ones the last.

    Attributes:
      mesh_axis: the devices.
      min_size: arrays with fewer elements are replicated. Biases and scales are all of the memory
        that this costs, and a collective for each is saved.
    """

    mesh_axis: str
    min_size: int = 4096

    def spec(self, shape: tuple[int, ...], devices: int) -> PartitionSpec:
        """The partition of an array of this shape."""
        fitting = [(size, axis) for axis, size in enumerate(shape) if size % devices == 0]
        if not fitting or math.prod(shape) < self.min_size:
            return PartitionSpec()
        return PartitionSpec(*(None,) * max(fitting)[1], self.mesh_axis)


@dataclass(frozen=True)
class Rule:
    """Says how arrays whose path matches are divided.

    Attributes:
      path: a regular expression, searched for in paths such as ``blocks.0.conv1.kernel``.
      spec: a mesh axis, several, or None for each axis of the array; the rule is for arrays with
        this number of axes. Or `LargestAxis`, for any number.
      kind: ``parameter``, or ``statistic`` for what the network itself updates, such as running
        means.
      strict: an array that matches but cannot be divided is an error, and so is a path that matches
        no array; else the array is replicated, as `LargestAxis` always does with an array without
        such an axis.
    """

    path: str
    spec: PartitionSpec | LargestAxis
    kind: Literal["parameter", "statistic"] = "parameter"
    strict: bool = True

    def __post_init__(self):
        try:
            re.compile(self.path)
        except re.error as error:
            raise InputError(
                f"rule {self.path!r}: not a valid regular expression ({error})"
            ) from error
        require_known("kind of rule", self.kind, _FIELDS)
        if not isinstance(self.spec, PartitionSpec | LargestAxis):
            raise InputError(
                f"rule {self.path!r}: spec {self.spec!r} must be a jax.sharding.PartitionSpec or a "
                "LargestAxis"
            )


# Every parameter; the optimizer state and the moving average follow.
FSDP_RULES = (Rule("", LargestAxis(DATA)),)

# Output channels of convolutions (kernels are HWIO), columns of dense layers, and what belongs to
# these channels. Layers whose channels cannot be shared equally, such as ten classes among four
# devices, are replicated.
TENSOR_RULES = (
    Rule(r"\bkernel$", PartitionSpec(None, None, None, TENSOR), strict=False),
    Rule(r"\bkernel$", PartitionSpec(None, TENSOR), strict=False),
    Rule(r"\b(bias|scale)$", PartitionSpec(TENSOR), strict=False),
    Rule(r"\b(mean|var)$", PartitionSpec(TENSOR), "statistic", strict=False),
)


def state_shardings(state: Shapes, rules: Sequence[Rule], mesh: Mesh | AbstractMesh) -> Any:
    """The sharding of each array of a train state.

    Parameters and running statistics follow the rules; those that match none are replicated. The
    optimizer state and the moving average of a parameter are divided as the parameter is. Keys,
    counters and scales of the step are replicated.

    Args:
      state: a `TrainState` in shapes.
      rules: see `Rule`.
      mesh: the devices.

    Raises:
      InputError: rules collide, or one of them cannot be followed or, if it is strict, matches
        nothing.
    """
    _require_matches(rules, state)
    of_parameters = {
        _names(path)[1:]: (leaf.shape, array_spec(_names(path)[1:], leaf, "parameter", rules, mesh))
        for path, leaf in jax.tree.leaves_with_path(state)
        if _names(path)[0] in _FIELDS["parameter"]
    }

    def sharding(path, leaf) -> NamedSharding:
        field, *rest = _names(path)
        if field in _FIELDS["statistic"]:
            return NamedSharding(mesh, array_spec(tuple(rest), leaf, "statistic", rules, mesh))
        return NamedSharding(mesh, _spec_of_parameter(tuple(rest), leaf.shape, of_parameters))

    return jax.tree.map_with_path(sharding, state)


def _require_matches(rules: Sequence[Rule], state: Shapes) -> None:
    """Checks that each strict rule is for an array of this state.

    Raises:
      InputError: one of them matches nothing.
    """
    paths = [_names(path) for path, _ in jax.tree.leaves_with_path(state)]
    for rule in rules:
        names = [".".join(path) for field, *path in paths if field in _FIELDS[rule.kind]]
        if rule.strict and not any(re.search(rule.path, name) for name in names):
            some = ", ".join(names[:_NAMES]) + ", …" * (len(names) > _NAMES)
            raise InputError(
                f"sharding rule {rule.path!r} matches no {rule.kind} of the network, which has "
                f"{some or 'none'}; correct its path, or pass strict=False"
            )


def parameter_shardings(params: Shapes, rules: Sequence[Rule], mesh: Mesh | AbstractMesh) -> Any:
    """The sharding of each parameter of a network; see `state_shardings`."""
    return jax.tree.map_with_path(
        lambda path, leaf: NamedSharding(
            mesh, array_spec(_names(path), leaf, "parameter", rules, mesh)
        ),
        params,
    )


def array_spec(
    path: Path,
    array: jax.ShapeDtypeStruct,
    kind: str,
    rules: Sequence[Rule],
    mesh: Mesh | AbstractMesh,
) -> PartitionSpec:
    """The partition of one array by the rule that is for it, if there is one.

    Raises:
      InputError: two rules are for it, or its rule cannot be followed.
    """
    name = f"{'.'.join(path)} {list(array.shape)}"
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return PartitionSpec()
    matching = [
        rule for rule in rules if rule.kind == kind and re.search(rule.path, ".".join(path))
    ]
    fitting = [rule for rule in matching if _takes_rank(rule, len(array.shape))]
    if len(fitting) > 1:
        texts = " and ".join(f"{rule.path!r} ({rule.spec})" for rule in fitting)
        raise InputError(f"sharding rules collide: {name} matches {texts}; make one more specific")
    if fitting:
        return _checked_spec(name, array.shape, fitting[0], mesh)
    for rule in matching:
        if rule.strict:
            raise InputError(
                f"sharding rule {rule.path!r} ({rule.spec}) matches {name}, which has "
                f"{len(array.shape)} axes: give an entry for each of them"
            )
    return PartitionSpec()


def _takes_rank(rule: Rule, rank: int) -> bool:
    return isinstance(rule.spec, LargestAxis) or len(rule.spec) == rank


def _checked_spec(
    name: str, shape: tuple[int, ...], rule: Rule, mesh: Mesh | AbstractMesh
) -> PartitionSpec:
    """The partition by this rule.

    Raises:
      InputError: the mesh lacks an axis of the rule, the rule has one twice, or it is strict and
        the devices cannot share the array equally.
    """
    spec = rule.spec
    entries = (spec.mesh_axis,) if isinstance(spec, LargestAxis) else tuple(spec)
    axes = [axis for entry in entries for axis in _mesh_axes(entry)]
    for axis in axes:
        if axis not in mesh.shape:
            raise InputError(
                f"sharding rule {rule.path!r} divides {name} over mesh axis {axis!r}; "
                f"the mesh has {', '.join(mesh.axis_names)}"
            )
        if axes.count(axis) > 1:
            raise InputError(
                f"sharding rule {rule.path!r} divides {name} over mesh axis {axis!r} twice"
            )
    if isinstance(spec, LargestAxis):
        return spec.spec(shape, mesh.shape[spec.mesh_axis])
    for size, entry in zip(shape, entries, strict=True):
        devices = math.prod(mesh.shape[axis] for axis in _mesh_axes(entry))
        if size % devices and rule.strict:
            raise InputError(
                f"sharding rule {rule.path!r}: {name} has an axis of {size}, which the {devices} "
                f"devices of mesh axis {' and '.join(_mesh_axes(entry))} cannot share equally"
            )
        if size % devices:
            return PartitionSpec()
    return spec


def _mesh_axes(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry or ()


def _spec_of_parameter(
    path: Path, shape: tuple[int, ...], of_parameters: dict[Path, tuple[Any, PartitionSpec]]
) -> PartitionSpec:
    """The partition of the parameter that an array belongs to: its path ends in the parameter's."""
    for start in range(len(path)):
        parameter_shape, spec = of_parameters.get(path[start:], (None, PartitionSpec()))
        if parameter_shape == shape:
            return spec
    return PartitionSpec()


def _names(path: Any) -> Path:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
