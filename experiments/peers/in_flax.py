"""The peer that users come from: the same network as a newcomer to Flax writes it, with `nnx.jit` and the library's own layers."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array, lax

from experiments.peers import layers as of
from experiments.peers.layers import Layer, Task

ACTIVATIONS = {
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
        momentum = 0.9 if task.optimizer == "momentum" else None
        updates = (
            optax.adam(task.rate) if task.optimizer == "adam" else optax.sgd(task.rate, momentum)
        )
        self.optimizer = nnx.Optimizer(self.model, updates, wrt=nnx.Param)
        self.step, self.predict = (
            nnx.jit(_step_of(task)),
            nnx.jit(lambda model, images: model(images)),
        )
        self.images, self.labels = jnp.asarray(task.images), jnp.asarray(task.labels)

    def logits(self) -> np.ndarray:
        """In evaluation, ``f32[N, outputs]``."""
        self.model.eval()
        return np.asarray(self.predict(self.model, self.images))

    def losses(self, steps: int) -> list[float]:
        """Cross-entropy of each of the next steps, before its update."""
        self.model.train()
        return [
            float(self.step(self.model, self.optimizer, self.images, self.labels))
            for _ in range(steps)
        ]

    def train(self, steps: int) -> None:
        """So many steps, finished."""
        self.model.train()
        for _ in range(steps):
            loss = self.step(self.model, self.optimizer, self.images, self.labels)
        jax.block_until_ready((loss, nnx.state(self.model)))

    def infer(self, calls: int) -> None:
        """So many forward passes, finished."""
        self.model.eval()
        for _ in range(calls):
            logits = self.predict(self.model, self.images)
        jax.block_until_ready(logits)


def _step_of(task: Task) -> Callable[[nnx.Module, nnx.Optimizer, Array, Array], Array]:
    """``step(model, optimizer, images, labels)``: one update; the cross-entropy before it, ``f32[]``."""

    def losses(model: nnx.Module, images: Array, labels: Array) -> tuple[Array, Array]:
        logits = model(images)
        if task.binary:
            loss = optax.sigmoid_binary_cross_entropy(logits[:, 0], labels).mean()
        else:
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        kernels = [
            layer.kernel[...]
            for _, layer in nnx.iter_modules(model)
            if getattr(layer, "decays", False)
        ]
        return loss + task.weight_decay / 2 * sum(jnp.sum(kernel**2) for kernel in kernels), loss

    def step(model: nnx.Module, optimizer: nnx.Optimizer, images: Array, labels: Array) -> Array:
        (_, loss), gradients = nnx.value_and_grad(losses, has_aux=True)(model, images, labels)
        optimizer.update(model, gradients)
        return loss

    return step


class _Residual(nnx.Module):
    """A block and its way around."""

    def __init__(self, body: nnx.Module, shortcut: nnx.Module):
        self.body, self.shortcut = body, shortcut

    def __call__(self, x: Array) -> Array:
        return self.body(x) + self.shortcut(x)


def _chain(layers: tuple[Layer, ...], task: Task, rngs: nnx.Rngs) -> nnx.Sequential:
    return nnx.Sequential(*(_layer(layer, task, rngs) for layer in layers))


def _layer(layer: Layer, task: Task, rngs: nnx.Rngs) -> Callable[[Array], Array]:
    match layer:
        case of.Conv() | of.Dense() | of.Norm():
            return _weighted(layer, task, rngs)
        case of.Activation(kind):
            return ACTIVATIONS[kind]
        case of.Pool(kind, window, strides, same):
            sizes = {
                "window_shape": (window, window),
                "strides": (strides, strides),
                "padding": "SAME" if same else "VALID",
            }
            return partial(POOLS[kind], **sizes)
        case of.ResponseNorm():
            return partial(_response_norm, layer=layer)
        case of.Dropout(rate):
            return nnx.Dropout(rate, rngs=rngs)
        case of.Flatten():
            return lambda images: images.reshape(len(images), -1)
        case of.GlobalAverage():
            return lambda images: images.mean(axis=(1, 2))
        case of.Residual(body, shortcut):
            return _Residual(_chain(body, task, rngs), _chain(shortcut, task, rngs))


def _weighted(layer: of.Conv | of.Dense | of.Norm, task: Task, rngs: nnx.Rngs) -> nnx.Module:
    leaves = task.leaves(layer.name)
    if isinstance(layer, of.Norm):
        module = nnx.BatchNorm(
            len(leaves["scale"]), epsilon=layer.epsilon, momentum=layer.momentum, rngs=rngs
        )
    elif isinstance(layer, of.Dense):
        module = nnx.Linear(*leaves["kernel"].shape, rngs=rngs)
    else:
        side, _, inputs, outputs = leaves["kernel"].shape
        padding = side // 2 if layer.padding is None else layer.padding
        around = ((padding, padding),) * 2
        module = nnx.Conv(
            inputs, outputs, (side, side), layer.strides, padding=around, use_bias="bias" in leaves, rngs=rngs
        )  # fmt: skip
    for leaf, array in leaves.items():
        getattr(module, leaf)[...] = jnp.asarray(array)
    module.decays = "kernel" in leaves and task.decays(layer.name)
    return module


def _response_norm(images: Array, *, layer: of.ResponseNorm) -> Array:
    window = (1, 1, 1, 2 * layer.radius + 1)
    squares = lax.reduce_window(images**2, 0.0, lax.add, window, (1, 1, 1, 1), "SAME")
    return images / (layer.bias + layer.alpha * squares) ** layer.beta
