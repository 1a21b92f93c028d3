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
from jaxcnn.models.layers import (
    AvgPool,
    BatchNorm,
    Dropout,
    GlobalAvgPool,
    LocalResponseNorm,
    MaxPool,
)

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
      gradients: how many gradients training takes of it: of its parameters where they are trained, and of its inputs where
        they hang on trained parameters of layers before it. Each costs what the forward pass does.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    trainable: int
    non_trainable: int
    flops: int
    gradients: int


def layer_rows(
    model: nnx.Module, input_shape: tuple[int, int, int], trainable: tuple[str, ...] = ()
) -> list[LayerRow]:
    """The layers of a network in the order in which they are called, as in training.

    Args:
      model: its numbers may be abstract (`nnx.eval_shape`).
      input_shape: height, width, channels.
      trainable: names of the layers that are trained, where not all are, as of `jaxcnn.training.create`.
    """
    graphdef, params, rest = nnx.split(
        model, nnx.All(nnx.Param, lambda path, _: not trainable or path[0] in trainable), ...
    )
    rows: list[LayerRow] = []

    def forward(params: Any, rest: Any, image: jax.Array) -> Any:
        copy = _in_training(nnx.merge(graphdef, params, rest, copy=True), trainable)
        return _recorded(copy, trainable, rows)(image)

    def differentiated(params: Any, rest: Any, image: jax.Array) -> Any:
        return jax.vjp(lambda params: forward(params, rest, image), params)[0]

    jax.eval_shape(
        differentiated, params, rest, jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    )
    return rows


def training_step_flops(
    model: nnx.Module,
    input_shape: tuple[int, int, int],
    batch: int,
    trainable: tuple[str, ...] = (),
) -> int:
    """FLOPs of one training step, by arithmetic from the table of layers: the closed form beside `model_flops`.

    Forward, gradient of the kernel and gradient of the inputs cost the same, so a step is three forward passes, less
    the gradient of the inputs of the layers that read the images (or what only frozen layers made of them), less that
    of the kernels of frozen layers. Loss, penalty and optimiser have no products.

    Args:
      model, input_shape, trainable: as of `layer_rows`.
      batch: images a step.

    >>> from jaxcnn import models
    >>> step = training_step_flops(models.build("logistic"), (28, 28, 1), 32)
    >>> step // (32 * models.spec("logistic").flops)  # a single layer, which reads the images: forward and kernel
    2
    """
    return batch * sum(
        row.flops * (1 + row.gradients) for row in layer_rows(model, input_shape, trainable)
    )


def _in_training(model: nnx.Module, trainable: tuple[str, ...]) -> nnx.Module:
    """Frozen layers run as in evaluation, as in `jaxcnn.training.step.Network`; batch norm too, shapes and costs being the same."""
    if trainable:
        model.eval()
        for name in trainable:
            getattr(model, name).train()
    # to write its statistics, NNX asks for their sharding, which takes JAX a walk through all that was traced so far
    model.set_attributes(nnx.BatchNorm, use_running_average=True, raise_if_not_found=False)
    return model


class _Recorder(nnx.Module):
    """A layer that notes its calls, as they are differentiated."""

    def __init__(self, name: str, layer: Any, is_trained: bool, rows: list[LayerRow]):
        self.layer = layer
        self.note = lambda *call: rows.append(_row(name, layer, is_trained, *call))

    def __call__(self, inputs: jax.Array) -> jax.Array:
        inputs, differentiated = _traced_back(inputs)
        outputs = self.layer(inputs)
        self.note(differentiated, inputs, outputs)
        return outputs


def _traced_back(inputs: jax.Array) -> tuple[jax.Array, bool]:
    """The inputs, and whether they hang on what is differentiated."""
    found = []

    @jax.custom_vjp
    def same(inputs: jax.Array) -> jax.Array:
        return inputs

    def forward(inputs: Any) -> tuple[jax.Array, None]:
        found.append(inputs.perturbed)
        return inputs.value, None

    same.defvjp(forward, lambda _, cotangent: (cotangent,), symbolic_zeros=True)
    return same(inputs), any(found)


def _recorded(model: nnx.Module, trainable: tuple[str, ...], rows: list[LayerRow]) -> nnx.Module:
    """The model, a recorder around each of its layers."""
    for path, module in list(nnx.iter_modules(model)):
        if isinstance(module, LAYERS):
            continue
        held = (
            list(enumerate(module)) if isinstance(module, nnx.List) else list(vars(module).items())
        )
        for key, value in held:
            if isinstance(value, LAYERS):
                name = ".".join(str(part) for part in (*path, key) if part != "layers")
                put = (
                    module.__setitem__
                    if isinstance(module, nnx.List)
                    else functools.partial(setattr, module)
                )
                is_trained = not trainable or (*path, key)[0] in trainable
                put(key, nnx.data(_Recorder(name, value, is_trained, rows)))
    return model


def _row(
    name: str,
    layer: Any,
    is_trained: bool,
    differentiated: bool,
    inputs: jax.Array,
    outputs: jax.Array,
) -> LayerRow:
    state = nnx.state(layer) if isinstance(layer, nnx.Module) else {}
    trainable, other = (
        sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.filter_state(state, kind)))
        if state
        else 0
        for kind in (nnx.Param, nnx.Not(nnx.Any(nnx.Param, nnx.RngState)))
    )
    flops = (
        model_flops(layer, inputs) if isinstance(layer, nnx.Conv | nnx.Linear | lenet.RBF) else 0
    )
    gradients = (is_trained and trainable > 0) + differentiated
    return LayerRow(name, _kind(layer), outputs.shape[1:], trainable, other, flops, gradients)


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
    if isinstance(layer, nnx.Linear):
        return "dense"
    names = {BatchNorm: "batch norm", GlobalAvgPool: "global average", LocalResponseNorm: "LRN"}
    return names.get(type(layer), type(layer).__name__)
