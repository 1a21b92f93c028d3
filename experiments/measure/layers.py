"""A network layer by layer: shapes, parameters and FLOPs, by tracing alone."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.measure.flops import model_flops
from experiments.measure.layer_row import FIXED, LAYERS, LayerRow, count, row_of


def layer_rows(
    model: nnx.Module, input_shape: tuple[int, int, int], trainable: tuple[str, ...] = ()
) -> list[LayerRow]:
    """The layers of a network in training, in the order in which they are called.

    Args:
      model: its parameters may be abstract (`nnx.eval_shape`).
      input_shape: height, width, channels.
      trainable: names of the trained layers, as for `jaxcnn.training.create`; empty for all.
    """
    graphdef, *states = nnx.split(
        model, nnx.All(nnx.Param, lambda path, _: not trainable or path[0] in trainable), ...
    )
    params, rest = states
    rows: list[LayerRow] = []

    def forward(params: Any, rest: Any, image: jax.Array) -> Any:
        copy = _set_training_mode(nnx.merge(graphdef, params, rest, copy=True), trainable)
        return _with_recorders(copy, trainable, rows)(image)

    def differentiate(params: Any, rest: Any, image: jax.Array) -> Any:
        return jax.vjp(lambda params: forward(params, rest, image), params)[0]

    image = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    jax.eval_shape(differentiate, params, rest, image)
    return rows


def all_rows(model: nnx.Module, input_shape: tuple[int, int, int]) -> list[LayerRow]:
    """The layers of a network, and a last row for what is in none of `LAYERS`, if anything is.

    Args:
      model, input_shape: as for `layer_rows`.
    """
    rows = layer_rows(model, input_shape)
    graphdef, state = nnx.split(model)

    def forward(state: Any, image: jax.Array) -> Any:
        return _set_training_mode(nnx.merge(graphdef, state, copy=True), ())(image)

    image = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    flops = model_flops(forward, state, image) - sum(row.flops for row in rows)
    trainable = count(state, nnx.Param) - sum(row.trainable for row in rows)
    fixed = count(state, FIXED) - sum(row.non_trainable for row in rows)
    if not (flops or trainable or fixed):
        return rows
    outputs = jax.tree.leaves(jax.eval_shape(forward, state, image))
    return [*rows, LayerRow("", "all else", outputs[0].shape[1:], trainable, fixed, flops, 0)]


def training_step_flops(
    model: nnx.Module,
    input_shape: tuple[int, int, int],
    batch: int,
    trainable: tuple[str, ...] = (),
) -> int:
    """FLOPs of one training step, computed from the table of layers.

    This is the closed form that `model_flops` of the real step must equal. Forward pass, gradient
    of the kernel and gradient of the inputs cost the same, so a step is three forward passes, minus
    the gradient of the inputs of layers that read the images (or outputs of frozen layers only),
    minus the gradient of the kernels of frozen layers. Loss, penalty and optimizer have no
    products.

    Args:
      model, input_shape, trainable: as for `layer_rows`.
      batch: images in a step.

    >>> from jaxcnn import models
    >>> step = training_step_flops(models.build("logistic"), (28, 28, 1), 32)
    >>> # a single layer, which reads the images: the forward pass and the gradient of its kernel
    >>> step // (32 * models.spec("logistic").flops)
    2
    """
    rows = layer_rows(model, input_shape, trainable)
    return batch * sum(row.flops * (1 + row.gradients) for row in rows)


def _set_training_mode(model: nnx.Module, trainable: tuple[str, ...]) -> nnx.Module:
    """Frozen layers run as in evaluation, as in `jaxcnn.training.network.Network`.

    Batch norm does too: its shapes and costs are the same.
    """
    if trainable:
        model.eval()
        for name in trainable:
            getattr(model, name).train()
    # To write its statistics, NNX looks up their sharding, for which JAX walks through everything
    # that was traced before.
    model.set_attributes(nnx.BatchNorm, use_running_average=True, raise_if_not_found=False)
    return model


class _Recorder(nnx.Module):
    """Wraps a layer and records a `LayerRow` for each of its calls."""

    def __init__(self, name: str, layer: Any, is_trained: bool, rows: list[LayerRow]):
        self.layer = layer
        self.record = lambda *call: rows.append(
            row_of(name, layer, is_trained, name in {row.name for row in rows}, *call)
        )

    def __call__(self, inputs: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
        inputs, differentiated = _is_differentiated(inputs)
        outputs = self.layer(inputs, *args, **kwargs)
        self.record(differentiated, inputs, outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        """An attribute of the layer, such as its kernel."""
        return getattr(object.__getattribute__(self, "layer"), name)


def _is_differentiated(inputs: jax.Array) -> tuple[jax.Array, bool]:
    """The inputs, and whether they depend on what is being differentiated."""
    perturbed = []

    @jax.custom_vjp
    def identity(inputs: jax.Array) -> jax.Array:
        return inputs

    def forward(inputs: Any) -> tuple[jax.Array, None]:
        perturbed.append(inputs.perturbed)
        return inputs.value, None

    identity.defvjp(forward, lambda _, cotangent: (cotangent,), symbolic_zeros=True)
    return identity(inputs), any(perturbed)


def _with_recorders(
    model: nnx.Module, trainable: tuple[str, ...], rows: list[LayerRow]
) -> nnx.Module:
    """The model, each of its layers wrapped in a recorder."""
    for path, module in list(nnx.iter_modules(model)):
        if isinstance(module, LAYERS):
            continue
        members: list[tuple[Any, Any]]
        if isinstance(module, nnx.List):
            members, put = list(enumerate(module)), module.__setitem__
        else:
            members, put = list(vars(module).items()), functools.partial(setattr, module)
        for key, layer in members:
            if isinstance(layer, LAYERS):
                name = ".".join(str(part) for part in (*path, key) if part != "layers")
                is_trained = not trainable or (*path, key)[0] in trainable
                put(key, nnx.data(_Recorder(name, layer, is_trained, rows)))
    return model
