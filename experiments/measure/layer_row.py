"""One call of a layer as a row of a table: its kind, its shape, its parameters and its FLOPs."""

import math
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from experiments.measure.flops import model_flops
from jaxcnn.models import lenet
from jaxcnn.models.layers import AvgPool, Dropout, GlobalAvgPool, LocalResponseNorm, MaxPool
from jaxcnn.models.residual import LayerScale, StochasticDepth

LAYERS = (
    nnx.Conv,
    nnx.Linear,
    nnx.BatchNorm,
    nnx.LayerNorm,
    LayerScale,
    Dropout,
    StochasticDepth,
    MaxPool,
    AvgPool,
    GlobalAvgPool,
    LocalResponseNorm,
    lenet.RBF,
)
KINDS = {
    nnx.BatchNorm: "batch norm",
    nnx.LayerNorm: "layer norm",
    LayerScale: "layer scale",
    GlobalAvgPool: "global average",
    LocalResponseNorm: "LRN",
}
FIXED = nnx.Not(nnx.Any(nnx.Param, nnx.RngState))


@dataclass(frozen=True)
class LayerRow:
    """One call of a layer.

    Attributes:
      name: its path in the network.
      kind: a short description.
      output_shape: for one image.
      trainable, non_trainable: the number of its parameters and of its other numbers; 0 for a
        further call of the same layer.
      flops: of its forward pass for one image.
      gradients: the number of its gradients in training, 0 to 2: with respect to its parameters if
        they are trained, and to its inputs if they depend on trained parameters of earlier layers.
        Each costs as much as the forward pass.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    trainable: int
    non_trainable: int
    flops: int
    gradients: int


def row_of(
    name: str,
    layer: Any,
    is_trained: bool,
    is_repeated: bool,
    differentiated: bool,
    inputs: jax.Array,
    outputs: jax.Array,
) -> LayerRow:
    """The row of a call.

    Args:
      name: path of the layer in the network.
      layer: the layer.
      is_trained: whether its parameters are trained.
      is_repeated: whether it was called before.
      differentiated: whether its inputs depend on trained parameters.
      inputs, outputs: of the call.
    """
    state = nnx.state(layer) if isinstance(layer, nnx.Module) else {}
    trainable = count(state, nnx.Param)
    has_products = isinstance(layer, nnx.Conv | nnx.Linear | lenet.RBF)
    return LayerRow(
        name=name,
        kind=_kind(layer),
        output_shape=outputs.shape[1:],
        trainable=0 if is_repeated else trainable,
        non_trainable=0 if is_repeated else count(state, FIXED),
        flops=model_flops(layer, inputs) if has_products else 0,
        gradients=(is_trained and trainable > 0) + differentiated,
    )


def count(state: Any, variables: Any) -> int:
    """The number of numbers in the variables of a state that a filter of NNX selects."""
    if not state:
        return 0
    leaves = jax.tree.leaves(nnx.filter_state(state, variables))
    return sum(math.prod(leaf.shape) for leaf in leaves)


def _kind(layer: Any) -> str:
    """A short description of a layer."""
    if isinstance(layer, nnx.Conv):
        sides = "×".join(map(str, layer.kernel_size))
        strides = layer.strides if isinstance(layer.strides, int) else layer.strides[0]
        groups = f", {layer.feature_group_count} groups" if layer.feature_group_count > 1 else ""
        return f"conv {sides}{f' /{strides}' if strides > 1 else ''}{groups}"
    if isinstance(layer, MaxPool | AvgPool):
        name = "max pool" if isinstance(layer, MaxPool) else "average pool"
        return f"{name} {layer.window}×{layer.window} /{layer.strides or layer.window}"
    if isinstance(layer, Dropout | StochasticDepth):
        name = "dropout" if isinstance(layer, Dropout) else "stochastic depth"
        return f"{name} {layer.rate:.3g}"
    if isinstance(layer, nnx.Linear):
        return "dense"
    names = (name for kind, name in KINDS.items() if isinstance(layer, kind))
    return next(names, type(layer).__name__)
