"""A network whose layers are on several devices, a stage on each."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from jaxcnn.errors import InputError
from jaxcnn.parallel.packing import Packing, select_paths
from jaxcnn.parallel.stages import Range, balance, blocks, equation_flops, owners, run_layers
from jaxcnn.training.network import Network
from jaxcnn.training.precision import cast
from jaxcnn.training.state import PyTree, Shapes, TrainState
from jaxcnn.training.step import TrainStep

AXIS = "stage"
# The fields of `TrainState` of which each device has the part of its stage.
PACKED = ("params", "frozen", "ema_params", "model_state", "opt_state")

_RANGE = "jaxcnn_range"  # in the names of operations while they are counted


@dataclass(frozen=True, eq=False)
class StagedNetwork:
    """A network in stages, and where the state of each stage is.

    Attributes:
      mesh: of the devices, with the axis `AXIS`.
      stages: the range of layers of each device.
      packings: of the fields `PACKED`.
      microbatches: the number of parts of a batch.
    """

    mesh: Mesh
    stages: tuple[Range, ...]
    packings: dict[str, Packing]
    microbatches: int

    @property
    def last(self) -> int:
        """The number of the last stage."""
        return len(self.stages) - 1

    @property
    def specs(self) -> TrainState:
        """How the fields of a packed state are divided among the devices."""
        specs: dict[str, Any] = {name: _spec(name) for name in TrainState.__dataclass_fields__}
        return TrainState(**specs)

    def unpack(self, stage: int, state: TrainState) -> TrainState:
        """The part of a stage in a state of which each packed field is one row of buffers."""
        parts = {
            name: self.packings[name].unpack_part(stage, getattr(state, name)) for name in PACKED
        }
        return state.replace(**parts)

    def apply(
        self,
        network: Network,
        stage: int,
        state: TrainState,
        x: Array,
        *,
        train: bool,
        batch_rows: Array | None = None,
    ) -> tuple[Any, PyTree]:
        """The outputs of a stage, those of the last one in float32, and its next `model_state`.

        Args:
          network: the whole network.
          stage: its number.
          state: the part of the stage; its `params`, `frozen` and `model_state` are used.
          x: the inputs of the stage: preprocessed images in the first.
          train, batch_rows: see `Network.apply`.

        Raises:
          InputError: a function among the layers changes an array that no layer of the stage has.
        """
        packings = self.packings
        whole = packings["model_state"].complete(stage, state.model_state)
        x = x if stage else x.astype(network.precision.compute)
        outputs, model_state = network.apply(
            packings["params"].complete(stage, state.params),
            packings["frozen"].complete(stage, state.frozen),
            whole,
            x,
            train=train,
            batch_rows=batch_rows,
            layers=functools.partial(run_layers, layers=self.stages[stage]),
        )
        if changed := packings["model_state"].changed_elsewhere(stage, whole, model_state):
            raise InputError(
                f"stage {stage + 1} of strategy 'pipeline' changes {', '.join(changed)}, which "
                "belongs to no layer of that stage: name the layer that has it in sequence(), and "
                "not only a function that calls it"
            )
        outputs = cast(outputs, jnp.float32) if stage == self.last else outputs
        return outputs, packings["model_state"].select(stage, model_state)

    def boundaries(self, network: Network, images: Shapes, *, train: bool) -> list[Shapes]:
        """Shapes of what each stage returns for preprocessed images."""
        shapes = []
        for stage in range(len(self.stages)):
            images, _ = jax.eval_shape(
                functools.partial(self.apply, network, stage, train=train),
                self._stage_shapes(stage),
                images,
            )
            shapes.append(images)
        return shapes

    def _stage_shapes(self, stage: int) -> Any:
        """A state of shapes, of which `apply` uses what it needs."""
        parts = {name: packing.parts[stage] for name, packing in self.packings.items()}
        rest = dict.fromkeys(set(TrainState.__dataclass_fields__) - set(PACKED))
        return TrainState(**parts, **rest)


def divide(step: TrainStep, state: Shapes, images: Shapes, mesh: Mesh) -> StagedNetwork:
    """Divides the network of a step into stages of about equal FLOPs, one for each device.

    Args:
      step: of the whole network.
      state: shapes of its train state.
      images: shapes of a batch of images, as they are stored.
      mesh: of the devices, with the axis `AXIS`.

    Raises:
      InputError: the network is not sequential, or has fewer blocks than there are devices; the
        batch cannot be divided into the microbatches.
    """
    _check_microbatches(images.shape[0], step)
    model = nnx.merge(step.network.graphdef, state.params, state.frozen, state.model_state)
    name, ranges, count = type(model).__name__, blocks(model), mesh.size
    if count > len(ranges):
        raise InputError(
            f"network {name} has {len(ranges)} layers or blocks with parameters, fewer than the "
            f"{count} devices of strategy 'pipeline', which need one each: use at most "
            f"{len(ranges)} devices, as --device=cpu:{len(ranges)} or gpu:{len(ranges)} does"
        )
    images = jax.eval_shape(step.network.preprocess, images, None)
    estimates = costs(step.network, state, images, ranges)
    parts = [(ranges[a][0], ranges[b - 1][1]) for a, b in balance(estimates, count)]
    return StagedNetwork(
        mesh, tuple(parts), _packings(step, state, model, parts), step.microbatches
    )


def _check_microbatches(batch_size: int, step: TrainStep) -> None:
    multiple = step.microbatches * step.rows_together
    if batch_size % multiple:
        pairs = ", each of whole pairs of images to mix" if step.rows_together > 1 else ""
        raise InputError(
            f"batch size {batch_size} cannot be divided into {step.microbatches} "
            f"microbatches{pairs}: it must be a multiple of {multiple}"
        )


def _packings(
    step: TrainStep, state: Shapes, model: Any, stages: list[Range]
) -> dict[str, Packing]:
    stage_of = owners(model, stages)

    def parts(tree: Shapes) -> tuple[Shapes, ...]:
        paths = [_keys(path) for path, _ in jax.tree.leaves_with_path(tree)]
        for path in paths:
            if path not in stage_of:
                raise InputError(
                    f"network {type(model).__name__}: {'.'.join(map(str, path))} is no flax.nnx "
                    "variable of one array, which 'pipeline' needs: choose another strategy"
                )
        return tuple(
            select_paths(tree, [path for path in paths if stage_of[path] == stage])
            for stage in range(len(stages))
        )

    fields = ("params", "frozen", "ema_params", "model_state")
    packings = {name: Packing(getattr(state, name), parts(getattr(state, name))) for name in fields}
    optimizer_parts = tuple(
        jax.eval_shape(step.optimizer.init, part) for part in packings["params"].parts
    )
    return packings | {"opt_state": Packing(state.opt_state, optimizer_parts)}


def costs(network: Network, state: Shapes, images: Shapes, ranges: Sequence[Range]) -> list[int]:
    """FLOPs of ranges of layers for preprocessed images, forward in training mode."""

    def run(model: nnx.Module, x: Array) -> Array:
        for number, layers in enumerate(ranges):
            with jax.named_scope(f"{_RANGE}{number}"):
                x = run_layers(model, x, layers)
        return x

    apply = functools.partial(network.apply, train=True, layers=run)
    jaxpr = jax.make_jaxpr(apply)(state.params, state.frozen, state.model_state, images).jaxpr
    result = [0] * len(ranges)
    for equation in jaxpr.eqns:
        if match := re.search(rf"{_RANGE}(\d+)", str(equation.source_info.name_stack)):
            result[int(match[1])] += equation_flops(equation)
    return result


def _keys(path: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(getattr(entry, "key", entry) for entry in path)


def _spec(field: str) -> PartitionSpec:
    return PartitionSpec(AXIS) if field in PACKED else PartitionSpec()
