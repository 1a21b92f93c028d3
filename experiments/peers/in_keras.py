"""The peer in Keras on TensorFlow: its own layers and optimizers, a step as one `tf.function`."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.peers.keras_network import build_network
from experiments.peers.task import Task

if TYPE_CHECKING:
    import keras


class Keras:
    """A network in Keras.

    Args:
      xla: whether XLA compiles the step and the forward pass.
    """

    def __init__(self, task: Task, *, xla: bool = False):
        import tensorflow as tf  # an environment variable of the process selects Keras's backend

        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(task.threads)
        self.model, optimizer = build_network(task), _optimizer(task)
        optimizer.build(self.model.trainable_variables)
        self.images, self.labels = tf.constant(task.images), tf.constant(task.labels)
        self.step = tf.function(_make_step(self.model, optimizer, task.binary), jit_compile=xla)
        self.predict = tf.function(
            lambda images: self.model(images, training=False), jit_compile=xla
        )

    def logits(self) -> np.ndarray:
        """The logits of the batch in evaluation, ``f32[N, outputs]``."""
        return self.predict(self.images).numpy()

    def losses(self, steps: int) -> list[float]:
        """Takes steps; returns the cross-entropy of each, before its update."""
        return [float(self.step(self.images, self.labels)) for _ in range(steps)]

    def train(self, steps: int) -> None:
        """Takes steps and waits for them."""
        for _ in range(steps):
            loss = self.step(self.images, self.labels)
        loss.numpy()

    def infer(self, calls: int) -> None:
        """Makes forward passes and waits for them."""
        for _ in range(calls):
            logits = self.predict(self.images)
        logits.numpy()


def _make_step(model: "keras.Model", optimizer: "keras.Optimizer", binary: bool):
    """``step(images, labels)``: updates; returns the cross-entropy before the update, ``f32[]``."""
    import keras
    import tensorflow as tf

    if binary:
        cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    else:
        cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = cross_entropy(labels[:, None] if binary else labels, logits)
            total = loss + sum(model.losses)  # weight decay
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step


def _optimizer(task: Task) -> "keras.Optimizer":
    from keras import optimizers

    if task.optimizer == "adam":
        return optimizers.Adam(task.learning_rate, epsilon=1e-8)
    momentum = 0.9 if task.optimizer == "momentum" else 0.0
    return optimizers.SGD(task.learning_rate, momentum=momentum)
