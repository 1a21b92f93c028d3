"""A network in plain Flax, built from its layers: as a user writes it, with Flax's own layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from experiments.peers import layers
from experiments.peers.layers import Layer, WithWeights
from experiments.peers.task import Task

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nnx.relu,
    "leaky_relu": partial(nnx.leaky_relu, negative_slope=0.1),
    "relu6": nnx.relu6,
    "tanh": nnx.tanh,
    "sigmoid": nnx.sigmoid,
    "silu": nnx.silu,
    "gelu": partial(nnx.gelu, approximate=False),
}
POOLS = {"max": nnx.max_pool, "average": nnx.avg_pool}


def build_network(task: Task) -> nnx.Module:
    """The network of a task, with its weights."""
    return _chain(task.layers, task, nnx.Rngs(0))


class Residual(nnx.Module):
    """A residual block: ``body(x) + shortcut(x)``."""

    def __init__(self, body: nnx.Module, shortcut: nnx.Module):
        self.body, self.shortcut = body, shortcut

    def __call__(self, x: Array) -> Array:
        return self.body(x) + self.shortcut(x)


class Gate(nnx.Module):
    """``x * body(x)``."""

    def __init__(self, body: nnx.Module):
        self.body = body

    def __call__(self, x: Array) -> Array:
        return x * self.body(x)


class Concatenation(nnx.Module):
    """The outputs of branches, concatenated along the channels."""

    def __init__(self, *branches: nnx.Module):
        self.branches = nnx.List(branches)

    def __call__(self, x: Array) -> Array:
        return jnp.concatenate([branch(x) for branch in self.branches], axis=-1)


class Scale(nnx.Module):
    """A factor for each channel."""

    def __init__(self, channels: int):
        self.scale = nnx.Param(jnp.ones(channels))

    def __call__(self, x: Array) -> Array:
        return x * self.scale[...]


def _chain(chain: tuple[Layer, ...], task: Task, rngs: nnx.Rngs) -> nnx.Sequential:
    return nnx.Sequential(*(_build(layer, task, rngs) for layer in chain))


def _build(layer: Layer, task: Task, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    match layer:
        case layers.Residual(body, shortcut):
            return Residual(_chain(body, task, rngs), _chain(shortcut, task, rngs))
        case layers.Gate(body):
            return Gate(_chain(body, task, rngs))
        case layers.Concatenation(branches):
            return Concatenation(*(_chain(branch, task, rngs) for branch in branches))
        case layers.Dropout(rate):
            return nnx.Dropout(rate, rngs=rngs)
        case layers.Activation(kind):
            return ACTIVATIONS[kind]
        case layers.Pool():
            return partial(_pool, layer=layer)
        case layers.ResponseNorm():
            return partial(_response_norm, layer=layer)
        case layers.Flatten():
            return lambda images: images.reshape(len(images), -1)
        case layers.GlobalAverage(keep_axes):
            return lambda images: images.mean(tuple(range(1, images.ndim - 1)), keepdims=keep_axes)
        case _:
            return _build_with_weights(layer, task, rngs)


def _build_with_weights(layer: WithWeights, task: Task, rngs: nnx.Rngs) -> nnx.Module:
    weights = task.layer_weights(layer.name)
    module = _with_initial_weights(layer, weights, rngs)
    for name, array in weights.items():
        getattr(module, name)[...] = jnp.asarray(array)
    module.has_weight_decay = "kernel" in weights and task.has_weight_decay(layer.name)
    return module


def _with_initial_weights(
    layer: WithWeights, weights: dict[str, np.ndarray], rngs: nnx.Rngs
) -> Any:
    match layer:
        case layers.Norm(_, epsilon, momentum):
            channels = len(weights["scale"])
            return nnx.BatchNorm(channels, epsilon=epsilon, momentum=momentum, rngs=rngs)
        case layers.LayerNorm(_, epsilon):
            return nnx.LayerNorm(len(weights["scale"]), epsilon=epsilon, rngs=rngs)
        case layers.Scale():
            return Scale(len(weights["scale"]))
        case layers.Dense():
            return nnx.Linear(*weights["kernel"].shape, rngs=rngs)
        case layers.Conv():
            return _conv(layer, weights, rngs)


def _conv(layer: layers.Conv, weights: dict[str, np.ndarray], rngs: nnx.Rngs) -> nnx.Conv:
    *sides, inputs, outputs = weights["kernel"].shape
    return nnx.Conv(
        inputs * layer.groups,
        outputs,
        tuple(sides),
        layer.strides,
        padding=tuple((pixels, pixels) for pixels in layer.pads(sides)),
        feature_group_count=layer.groups,
        use_bias="bias" in weights,
        rngs=rngs,
    )


def _pool(images: Array, *, layer: layers.Pool) -> Array:
    sides = images.shape[1:-1]
    return POOLS[layer.kind](
        images,
        window_shape=(layer.window,) * len(sides),
        strides=(layer.strides,) * len(sides),
        padding=tuple(layer.pads(side) for side in sides),
    )


def _response_norm(images: Array, *, layer: layers.ResponseNorm) -> Array:
    window = (1,) * (images.ndim - 1) + (2 * layer.radius + 1,)
    squares = lax.reduce_window(images**2, 0.0, lax.add, window, (1,) * images.ndim, "SAME")
    return images / (layer.bias + layer.alpha * squares) ** layer.beta
