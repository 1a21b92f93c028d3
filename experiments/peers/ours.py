"""Our side: the train step as users get it, many in one dispatch over data on the device, and one by one."""

from functools import cached_property

import jax
import numpy as np

from experiments.measure.flops import bytes_once, model_flops
from experiments.peers.layers import Dropout, Task
from jaxcnn import backend, models, parallel, training, weights
from jaxcnn.data.order import epoch_order
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.models import layers

MOST_STEPS, MOST_BYTES = (
    32,
    2**24,
)  # of one dispatch, and of the images that lie on the device for it


class Ours:
    """A network of `jaxcnn`. Programs are compiled at their first use.

    The resident data hold the batch as often as a dispatch has steps, so placed that each step of the first epoch gathers just that batch.
    """

    def __init__(self, task: Task):
        device = backend.select("cpu").devices[:1]
        self.task, self.strategy = task, parallel.strategy("jit", device)
        model = models.build(
            task.model, num_classes=task.classes, input_shape=task.images.shape[1:]
        )
        weights.assign(model, task.weights)
        if not any(isinstance(layer, Dropout) for layer in task.layers):
            model.set_attributes(layers.Dropout, rate=0.0, raise_if_not_found=False)
        optimizer = training.optimizer(
            task.optimizer, task.rate, "constant", steps=1, steps_per_epoch=1
        )
        drawn, self.step = training.create(
            model,
            optimizer,
            weight_decay=task.weight_decay,
            weight_decay_layers=task.weight_decay_layers,
        )
        self.state = self.strategy.place(drawn)
        steps = max(2, min(MOST_STEPS, MOST_BYTES // task.images.nbytes))
        self.feed = ResidentFeed(steps * len(task.labels), len(task.labels))
        self.batch = self.strategy.place_batch({"image": task.images, "label": task.labels})
        self.data = self.strategy.place_data(self._resident())
        self.done = 0

    def logits(self) -> np.ndarray:
        """In evaluation, ``f32[N, outputs]``."""
        return np.asarray(self._predict(self.state, self.batch["image"]))

    def losses(self, steps: int) -> list[float]:
        """Cross-entropy of each of the next steps, in one dispatch, before its update."""
        metrics = self._dispatch(steps)
        return (np.asarray(metrics["loss"]) / np.asarray(metrics["count"]).clip(1))[:steps].tolist()

    def train(self, steps: int) -> None:
        """So many steps, finished, as many as may be in a dispatch."""
        while steps:
            count = min(steps, self.feed.capacity - self.done % self.feed.capacity)
            metrics = self._dispatch(count)
            steps -= count
        jax.block_until_ready((metrics, self.state))

    def once(self, steps: int) -> None:
        """So many steps, finished, each a dispatch."""
        for _ in range(steps):
            self.state, metrics = self._once(self.state, self.batch)
        jax.block_until_ready((metrics, self.state))
        self.done += steps

    def infer(self, calls: int) -> None:
        """So many forward passes, finished."""
        for _ in range(calls):
            logits = self._predict(self.state, self.batch["image"])
        jax.block_until_ready(logits)

    def facts(self) -> dict[str, float]:
        """Of a step, by the names of `METRICS`."""
        return {
            "flops_per_step": model_flops(self.step, self.state, self.batch),
            "bytes_per_step": bytes_once(self.step, self.state, self.batch),
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(self.state.params)),
        }

    def _dispatch(self, count: int) -> dict[str, jax.Array]:
        self.state, metrics = self._many(self.state, self.data, np.int32(count))
        self.done += count
        return metrics

    def _resident(self) -> dict[str, np.ndarray]:
        places = np.argsort(epoch_order(self.feed.count, self.feed.seed, 0))
        rows = np.arange(self.feed.count)[places] % self.feed.batch_size
        return {"image": self.task.images[rows], "label": self.task.labels[rows]}

    @cached_property
    def _many(self):
        return self.strategy.compile(training.multi_step(self.step, self.feed), resident=True)

    @cached_property
    def _once(self):
        return self.strategy.compile(self.step)

    @cached_property
    def _predict(self):
        return jax.jit(self.step.evaluation.outputs, compiler_options=self.strategy.options or None)
