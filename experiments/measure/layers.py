"""A network layer by layer: shapes, parameters and FLOPs, found by tracing, without computing anything."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.measure.flops import model_flops
from jaxcnn.models import lenet
from jaxcnn.models.layers import AvgPool, Dropout, GlobalAvgPool, LocalResponseNorm, MaxPool

LAYERS = (
    nnx.Conv, nnx.Linear, nnx.BatchNorm, Dropout, MaxPool, AvgPool, GlobalAvgPool, LocalResponseNorm, lenet.RBF
)  # fmt: skip


@dataclass(frozen=True)
class LayerRow:
    """One call of a layer.

    Attributes:
      name: its path in the network.
      kind: what it is, in a few words.
      output_shape: of one image.
      trainable, non_trainable: numbers it holds.
      flops: of its forward pass for one image.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    trainable: int
    non_trainable: int
    flops: int


def layer_rows(model: nnx.Module, input_shape: tuple[int, int, int]) -> list[LayerRow]:
    """The layers of a network in the order in which they are called, as in training.

    Args:
      model: its numbers may be abstract (`nnx.eval_shape`).
      input_shape: height, width, channels.
    """
    graphdef, state = nnx.split(model)
    rows: list[LayerRow] = []

    def forward(state: Any, image: jax.Array) -> Any:
        return _recorded(nnx.merge(graphdef, state, copy=True), rows)(image)

    jax.eval_shape(forward, state, jax.ShapeDtypeStruct((1, *input_shape), jnp.float32))
    return rows


class _Recorder(nnx.Module):
    """A layer that notes its calls."""

    def __init__(self, name: str, layer: Any, rows: list[LayerRow]):
        self.layer = layer
        self.note = lambda inputs, outputs: rows.append(_row(name, layer, inputs, outputs))

    def __call__(self, inputs: jax.Array) -> jax.Array:
        outputs = self.layer(inputs)
        self.note(inputs, outputs)
        return outputs


def _recorded(model: nnx.Module, rows: list[LayerRow]) -> nnx.Module:
    """The model, a recorder around each of its layers."""
    for path, module in list(nnx.iter_modules(model)):
        if isinstance(module, LAYERS):
            continue
        held = list(enumerate(module)) if isinstance(module, nnx.List) else list(vars(module).items())
        for key, value in held:
            if isinstance(value, LAYERS):
                name = ".".join(str(part) for part in (*path, key) if part != "layers")
                put = module.__setitem__ if isinstance(module, nnx.List) else functools.partial(setattr, module)
                put(key, nnx.data(_Recorder(name, value, rows)))
    return model


def _row(name: str, layer: Any, inputs: jax.Array, outputs: jax.Array) -> LayerRow:
    state = nnx.state(layer) if isinstance(layer, nnx.Module) else {}
    trainable, other = (
        sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.filter_state(state, kind))) if state else 0
        for kind in (nnx.Param, nnx.Not(nnx.Any(nnx.Param, nnx.RngState)))
    )
    flops = model_flops(layer, inputs) if isinstance(layer, nnx.Conv | nnx.Linear | lenet.RBF) else 0
    return LayerRow(name, _kind(layer), outputs.shape[1:], trainable, other, flops)


def _kind(layer: Any) -> str:
    if isinstance(layer, nnx.Conv):
        sides = "×".join(map(str, layer.kernel_size))
        strides = layer.strides if isinstance(layer.strides, int) else layer.strides[0]
        groups = f", {layer.feature_group_count} groups" if layer.feature_group_count > 1 else ""
        return f"conv {sides}{f' /{strides}' if strides > 1 else ''}{groups}"
    if isinstance(layer, MaxPool | AvgPool):
        name = "max pool" if isinstance(layer, MaxPool) else "average pool"
        return f"{name} {layer.window}×{layer.window} /{layer.strides or layer.window}"
    if isinstance(layer, Dropout):
        return f"dropout {layer.rate:g}"
    names = {nnx.Linear: "dense", nnx.BatchNorm: "batch norm", GlobalAvgPool: "global average", LocalResponseNorm: "LRN"}
    return names.get(type(layer), type(layer).__name__)
