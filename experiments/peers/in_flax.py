"""The peer in plain Flax: the network as a newcomer writes it, with `nnx.jit` and Flax's layers."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from experiments.peers.flax_network import build_network
from experiments.peers.task import Task


class Flax:
    """A network in plain Flax."""

    def __init__(self, task: Task):
        jax.config.update("jax_platforms", "cpu")
        self.model = build_network(task)
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
