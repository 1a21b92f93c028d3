"""The peer in plain Flax: the network as a newcomer writes it, with `nnx.jit` and Flax's layers."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array, lax

from experiments.peers import layers
from experiments.peers.layers import Layer, Task

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nnx.relu,
    "tanh": nnx.tanh,
    "leaky_relu": partial(nnx.leaky_relu, negative_slope=0.1),
}
POOLS = {"max": nnx.max_pool, "average": nnx.avg_pool}


class Flax:
    """A network in plain Flax."""

    def __init__(self, task: Task):
        jax.config.update("jax_platforms", "cpu")
        self.model = _chain(task.layers, task, nnx.Rngs(0))
        self.optimizer = nnx.Optimizer(self.model, _optimizer(task), wrt=nnx.Param)
        self.step = nnx.jit(_make_step(task))
        self.predict = nnx.jit(lambda model, images: model(images))
        self.images, self.labels = jnp.asarray(task.images), jnp.asarray(task.labels)

    def logits(self) -> np.ndarray:
        """The logits of the batch in evaluation, ``f32[N, outputs]``."""
        self.model.eval()
        return np.asarray(self.predict(self.model, self.images))

    def losses(self, steps: int) -> list[float]:
        """Takes steps; returns the cross-entropy of each, before its update."""
        self.model.train()
        return [
            float(self.step(self.model, self.optimizer, self.images, self.labels))
            for _ in range(steps)
        ]

    def train(self, steps: int) -> None:
        """Takes steps and waits for them."""
        self.model.train()
        for _ in range(steps):
            loss = self.step(self.model, self.optimizer, self.images, self.labels)
        jax.block_until_ready((loss, nnx.state(self.model)))

    def infer(self, calls: int) -> None:
        """Makes forward passes and waits for them."""
        self.model.eval()
        for _ in range(calls):
            logits = self.predict(self.model, self.images)
        jax.block_until_ready(logits)


def _optimizer(task: Task) -> optax.GradientTransformation:
    if task.optimizer == "adam":
        return optax.adam(task.learning_rate)
    return optax.sgd(task.learning_rate, 0.9 if task.optimizer == "momentum" else None)


def _make_step(task: Task) -> Callable[[nnx.Module, nnx.Optimizer, Array, Array], Array]:
    """``step(model, optimizer, images, labels)``: updates; returns the cross-entropy before it."""

    def losses(model: nnx.Module, images: Array, labels: Array) -> tuple[Array, Array]:
        logits = model(images)
        if task.binary:
            loss = optax.sigmoid_binary_cross_entropy(logits[:, 0], labels).mean()
        else:
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        modules: Iterable[tuple[Any, Any]] = nnx.iter_modules(model)
        kernels = [
            layer.kernel[...] for _, layer in modules if getattr(layer, "has_weight_decay", False)
        ]
        return loss + task.weight_decay / 2 * sum(jnp.sum(kernel**2) for kernel in kernels), loss

    def step(model: nnx.Module, optimizer: nnx.Optimizer, images: Array, labels: Array) -> Array:
        (_, loss), gradients = nnx.value_and_grad(losses, has_aux=True)(model, images, labels)
        optimizer.update(model, gradients)
        return loss

    return step


class _Residual(nnx.Module):
    """A residual block: ``body(x) + shortcut(x)``."""

    def __init__(self, body: nnx.Module, shortcut: nnx.Module):
        self.body, self.shortcut = body, shortcut

    def __call__(self, x: Array) -> Array:
        return self.body(x) + self.shortcut(x)


def _chain(chain: tuple[Layer, ...], task: Task, rngs: nnx.Rngs) -> nnx.Sequential:
    return nnx.Sequential(*(_build(layer, task, rngs) for layer in chain))


def _build(layer: Layer, task: Task, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    match layer:
        case layers.Conv() | layers.Dense() | layers.Norm():
            return _build_with_weights(layer, task, rngs)
        case layers.Activation(kind):
            return ACTIVATIONS[kind]
        case layers.Pool(kind, window, strides, same):
            return partial(
                POOLS[kind],
                window_shape=(window, window),
                strides=(strides, strides),
                padding="SAME" if same else "VALID",
            )
        case layers.ResponseNorm():
            return partial(_response_norm, layer=layer)
        case layers.Dropout(rate):
            return nnx.Dropout(rate, rngs=rngs)
        case layers.Flatten():
            return lambda images: images.reshape(len(images), -1)
        case layers.GlobalAverage():
            return lambda images: images.mean(axis=(1, 2))
        case layers.Residual(body, shortcut):
            return _Residual(_chain(body, task, rngs), _chain(shortcut, task, rngs))


def _build_with_weights(
    layer: layers.Conv | layers.Dense | layers.Norm, task: Task, rngs: nnx.Rngs
) -> nnx.Module:
    weights = task.layer_weights(layer.name)
    module: Any
    if isinstance(layer, layers.Norm):
        module = nnx.BatchNorm(
            len(weights["scale"]), epsilon=layer.epsilon, momentum=layer.momentum, rngs=rngs
        )
    elif isinstance(layer, layers.Dense):
        module = nnx.Linear(*weights["kernel"].shape, rngs=rngs)
    else:
        module = _conv(layer, weights, rngs)
    for name, array in weights.items():
        getattr(module, name)[...] = jnp.asarray(array)
    module.has_weight_decay = "kernel" in weights and task.has_weight_decay(layer.name)
    return module


def _conv(layer: layers.Conv, weights: dict[str, np.ndarray], rngs: nnx.Rngs) -> nnx.Conv:
    side, _, inputs, outputs = weights["kernel"].shape
    padding = side // 2 if layer.padding is None else layer.padding
    return nnx.Conv(
        inputs,
        outputs,
        (side, side),
        layer.strides,
        padding=((padding, padding),) * 2,
        use_bias="bias" in weights,
        rngs=rngs,
    )


def _response_norm(images: Array, *, layer: layers.ResponseNorm) -> Array:
    window = (1, 1, 1, 2 * layer.radius + 1)
    squares = lax.reduce_window(images**2, 0.0, lax.add, window, (1, 1, 1, 1), "SAME")
    return images / (layer.bias + layer.alpha * squares) ** layer.beta
