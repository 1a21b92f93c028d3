"""The peer `ours`: the train step of `jaxcnn`, with a single step per call or many of them."""

from functools import cached_property

import jax
import numpy as np

from experiments.measure.compiler import uses_winograd
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.peers.flax_network import build_network
from experiments.peers.task import Task
from experiments.peers.user_networks import USER_NETWORKS
from jaxcnn import backend, models, ops, parallel, training, weights
from jaxcnn.data.order import epoch_order
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.models import layers

MAX_STEPS = 32  # of a call
MAX_BYTES = 2**24  # of the images that are on the device for a call


class Ours:
    """A network of `jaxcnn.models`, or a user's in plain Flax, which `training.create` accelerates.

    Args:
      task: to perform.
      frozen: whether inference has its weights fixed (`jaxcnn.ops.freeze`); such a network cannot
        be trained, because train steps are given its weights.

    Programs are compiled at their first use. The resident data of `many_steps` contain the batch
    once for each step of a call, in such an order that each step of the first epoch gathers exactly
    that batch.
    """

    def __init__(self, task: Task, *, frozen: bool = False):
        device = backend.select(task.platform).devices[:1]
        self.frozen = frozen
        self.task, self.strategy = task, parallel.strategy("jit", device)
        optimizer = training.optimizer(
            task.optimizer, task.learning_rate, "constant", steps=1, steps_per_epoch=1
        )
        state, self.step = training.create(
            _build_model(task),
            optimizer,
            precision=task.precision,
            weight_decay=task.weight_decay,
            weight_decay_layers=task.weight_decay_layers,
        )
        self.state = self.strategy.place(state)
        steps = max(2, min(MAX_STEPS, MAX_BYTES // task.images.nbytes))
        self.feed = ResidentFeed(steps * len(task.labels), len(task.labels))
        self.batch = self.strategy.place_batch({"image": task.images, "label": task.labels})
        self.steps_done = 0

    def logits(self) -> np.ndarray:
        """The logits of the batch in evaluation, ``f32[N, outputs]``."""
        return np.asarray(self._predict(self.batch["image"]), np.float32)

    def losses(self, steps: int) -> list[float]:
        """Takes steps; returns the cross-entropy of each, before its update."""
        metrics = [self._take_step() for _ in range(steps)]
        return [float(each["loss"]) / float(each["count"]) for each in metrics]

    def train(self, steps: int) -> None:
        """Takes steps, one per call, on the same batch, and waits for them."""
        for _ in range(steps):
            metrics = self._take_step()
        jax.block_until_ready((metrics, self.state))

    def many_steps(self, steps: int) -> None:
        """Takes steps, as many per call as possible, and waits for them."""
        while steps:
            count = min(steps, self.feed.capacity - self.steps_done % self.feed.capacity)
            self.state, metrics = self._multi_step(self.state, self._data, np.int32(count))
            self.steps_done += count
            steps -= count
        jax.block_until_ready((metrics, self.state))

    def infer(self, calls: int) -> None:
        """Makes forward passes and waits for them."""
        for _ in range(calls):
            logits = self._predict(self.batch["image"])
        jax.block_until_ready(logits)

    def device_memory_peak(self) -> int | None:
        """Peak bytes of this process on its device; None if JAX does not know them."""
        statistics = self.strategy.devices[0].memory_stats() or {}
        return statistics.get("peak_bytes_in_use")

    def step_metrics(self) -> dict[str, float]:
        """FLOPs, bytes and parameters of a step, and FLOPs of an inference, as in `METRICS`."""
        outputs = self.step.evaluation.outputs
        return {
            "flops_per_step": model_flops(self.step, self.state, self.batch),
            "bytes_per_step": compulsory_bytes(self.step, self.state, self.batch),
            "flops_per_call": model_flops(outputs, self.state, self.batch["image"]),
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(self.state.params)),
        }

    def uses_winograd(self) -> bool:
        """Whether the train step has convolutions by Winograd's method."""
        return uses_winograd(self._single_step.lower(self.state, self.batch).compile())

    def _take_step(self) -> dict[str, jax.Array]:
        self.state, metrics = self._single_step(self.state, self.batch)
        self.steps_done += 1
        return metrics

    @cached_property
    def _data(self):
        seed = np.uint32(0)
        positions = np.argsort(epoch_order(self.feed.count, seed, 0))
        rows = np.arange(self.feed.count)[positions] % self.feed.batch_size
        return self.strategy.place_data(
            {"image": self.task.images[rows], "label": self.task.labels[rows], "seed": seed}
        )

    @cached_property
    def _multi_step(self):
        return self.strategy.compile(training.multi_step(self.step, self.feed), resident=True)

    @cached_property
    def _single_step(self):
        return self.strategy.compile(self.step)

    @cached_property
    def _predict(self):
        outputs, options = self.step.evaluation.outputs, self.strategy.options or None
        if self.frozen:
            return ops.freeze(outputs, self.state, compiler_options=options)
        predict = jax.jit(outputs, compiler_options=options)
        return lambda images: predict(self.state, images)


def _build_model(task: Task):
    """The network with the task's weights, and with dropout only if the task has it."""
    if task.model in USER_NETWORKS:
        return build_network(task)
    shape = task.images.shape[1:]
    model = models.build(task.model, num_classes=task.num_classes, input_shape=shape)
    weights.assign(model, task.weights)
    if not task.has_dropout:
        model.set_attributes(layers.Dropout, rate=0.0, raise_if_not_found=False)
    return model
