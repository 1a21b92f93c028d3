"""A network without its parameters: what the train step and the evaluation step run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.data.augment import unit_scale
from jaxcnn.errors import InputError
from jaxcnn.training.objective import Batch, Metrics, classification
from jaxcnn.training.precision import Precision, cast
from jaxcnn.training.sharding import UNSHARDED, BatchSharding
from jaxcnn.training.state import PyTree

Path = tuple[Any, ...]
Preprocess = Callable[[Array, Array | None], Array]
Mix = Callable[[Array, Batch, Array], tuple[Array, Batch]]
Objective = Callable[..., Metrics]


# Their statistics are those of an example: devices with other examples have no part in them.
_OF_ONE_EXAMPLE = (nnx.LayerNorm, nnx.RMSNorm, nnx.GroupNorm, nnx.InstanceNorm)


@dataclass(frozen=True)
class Network:
    """A network without its parameters: what the train step and the evaluation step share.

    Attributes:
      graphdef: the network's structure, from `nnx.split`.
      precision: see `precision.Precision`.
      preprocess: ``preprocess(images, keys)``, run inside the compiled step: normalisation, and
        augmentation where `keys` are given.
      objective: ``objective(outputs, batch)``, a dict with the summed ``loss`` that is minimized,
        ``correct``, and ``count``, the number of rows that are summed: those whose mask is 1.
      trainable: names of the layers to train, all if empty; the others run in evaluation mode.
      random_state: paths in `model_state` of the keys and counters of random numbers.
    """

    graphdef: nnx.GraphDef
    precision: Precision
    preprocess: Preprocess = unit_scale
    objective: Objective = classification
    trainable: tuple[str, ...] = ()
    random_state: tuple[Path, ...] = ()

    def apply(
        self,
        params: PyTree,
        frozen: PyTree,
        model_state: PyTree,
        images: Array,
        sharding: BatchSharding = UNSHARDED,
        *,
        train: bool,
        batch_rows: Array | None = None,
        layers: Callable[[nnx.Module, Array], Any] | None = None,
    ) -> tuple[Any, PyTree]:
        """Runs the network.

        Args:
          params, frozen, model_state: fields of `TrainState`.
          images: preprocessed, ``f32[N, H, W, C]``.
          sharding: supplied by the strategy. In training, batch norm takes its statistics over
            all shares of the batch.
          train: training mode (batch statistics, dropout) or evaluation mode.
          batch_rows: ``i32[N]``, the positions of the images in the global batch, by which layers
            draw random numbers; None for 0, 1, 2, …
          layers: ``layers(model, images)`` runs a part of the network; `images` are the inputs of
            that part, and neither they nor the outputs are cast. None runs the whole network.

        Returns:
          The outputs in float32, and the next `model_state`, without what the network keeps as
          `nnx.Intermediate`.

        Raises:
          InputError: the network has created or removed variables.
        """
        dtype = self.precision.compute
        params, frozen = (sharding.gather(cast(tree, dtype)) for tree in (params, frozen))
        model = nnx.merge(self.graphdef, params, frozen, model_state, copy=True)
        if not train or self.trainable:
            model.eval()
        if train:
            for part in [getattr(model, name) for name in self.trainable] or [model]:
                if isinstance(part, nnx.Module):  # not a parameter of the network itself
                    part.train()
        axis_name = sharding.axis_name if train else None
        model.set_attributes(
            nnx.Not(nnx.Any(*_OF_ONE_EXAMPLE)),
            axis_name=axis_name,
            batch_rows=batch_rows,
            raise_if_not_found=False,
        )
        layout = sharding.channel_layout
        if layout:
            model.set_attributes(channel_layout=layout, raise_if_not_found=False)
            for _, part in nnx.iter_modules(model):
                if isinstance(part, nnx.Conv):
                    convolution = part.conv_general_dilated
                    part.conv_general_dilated = layout.with_shared_groups(convolution)
        if layers:
            outputs = layers(model, images)
        else:
            outputs = cast(model(images.astype(dtype)), jnp.float32)
        if layout:  # the objective compares all channels of an example
            outputs = jax.tree.map(layout.gather, outputs)
        model.set_attributes(batch_rows=None, raise_if_not_found=False)  # no part of the state
        kept = nnx.Not(nnx.Any(nnx.Param, nnx.Intermediate))
        next_model_state = nnx.to_pure_dict(nnx.state(model, kept))
        _require_same_structure(model_state, next_model_state)
        return outputs, next_model_state


def _require_same_structure(before: PyTree, after: PyTree) -> None:
    """A step takes the state that the one before has returned, in one compiled program."""
    paths = [
        [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree)]
        for tree in (before, after)
    ]
    if paths[0] == paths[1]:
        return
    changed = sorted(set(paths[0]) ^ set(paths[1]))
    raise InputError(
        f"the network creates or removes variables when it is called: {', '.join(changed[:5])}; "
        "create them when it is built, or keep what is only looked at as nnx.Intermediate "
        "(in Linen: in the collection 'intermediates')"
    )
