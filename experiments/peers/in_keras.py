"""The peer in Keras on TensorFlow: its own layers and optimizers, a step as one `tf.function`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers import layers
from experiments.peers.layers import Layer, Task

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
        self.model, optimizer = _network(task), _optimizer(task)
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


def _network(task: Task) -> "keras.Model":
    import keras

    images = keras.Input(task.images.shape[1:])
    return keras.Model(images, _apply_chain(task.layers, task, images))


def _apply_chain(chain: tuple[Layer, ...], task: Task, x: Any) -> Any:
    for layer in chain:
        x = _apply(layer, task, x)
    return x


def _apply(layer: Layer, task: Task, x: Any) -> Any:
    import keras

    match layer:
        case layers.Conv() | layers.Dense() | layers.Norm():
            return _apply_with_weights(layer, task, x)
        case layers.Activation():
            return _activation(layer)(x)
        case layers.Pool():
            return _pool(layer)(x)
        case layers.ResponseNorm():
            return _response_norm(layer)(x)
        case layers.Dropout(rate):
            return keras.layers.Dropout(rate)(x)
        case layers.Flatten():
            return keras.layers.Flatten()(x)
        case layers.GlobalAverage():
            return keras.layers.GlobalAveragePooling2D()(x)
        case layers.Residual(body, shortcut):
            return keras.layers.Add()(
                [_apply_chain(branch, task, x) for branch in (body, shortcut)]
            )


def _activation(layer: layers.Activation) -> "keras.Layer":
    import keras

    if layer.kind == "relu":
        return keras.layers.ReLU()
    if layer.kind == "tanh":
        return keras.layers.Activation("tanh")
    return keras.layers.LeakyReLU(0.1)


def _pool(layer: layers.Pool) -> "keras.Layer":
    import keras

    pools = {"max": keras.layers.MaxPooling2D, "average": keras.layers.AveragePooling2D}
    return pools[layer.kind](layer.window, layer.strides, "same" if layer.same else "valid")


def _response_norm(layer: layers.ResponseNorm) -> "keras.Layer":
    import keras
    import tensorflow as tf

    return keras.layers.Lambda(
        lambda images: tf.nn.local_response_normalization(
            images, layer.radius, layer.bias, layer.alpha, layer.beta
        )
    )


def _apply_with_weights(layer: layers.Conv | layers.Dense | layers.Norm, task: Task, x: Any) -> Any:
    """The layer applied to `x`, its weights set in the order that Keras requires."""
    import keras

    weights = task.layer_weights(layer.name)
    decay = task.weight_decay / 2 if task.has_weight_decay(layer.name) else None
    regularizer = None if decay is None else keras.regularizers.L2(decay)
    if isinstance(layer, layers.Norm):
        module = keras.layers.BatchNormalization(momentum=layer.momentum, epsilon=layer.epsilon)
        order: tuple[str, ...] = ("scale", "bias", "mean", "var")
    elif isinstance(layer, layers.Dense):
        module = keras.layers.Dense(weights["kernel"].shape[1], kernel_regularizer=regularizer)
        order = ("kernel", "bias")
    else:
        x, module = _conv(layer, weights, regularizer, x)
        order = ("kernel", "bias") if "bias" in weights else ("kernel",)
    y = module(x)
    module.set_weights([weights[name] for name in order])
    return y


def _conv(
    layer: layers.Conv, weights: dict[str, np.ndarray], regularizer: Any, x: Any
) -> tuple[Any, "keras.Layer"]:
    """The padded input, and the convolution."""
    import keras

    side, _, _, outputs = weights["kernel"].shape
    padding = side // 2 if layer.padding is None else layer.padding
    same = padding == side // 2 and layer.strides == 1 and side % 2 == 1
    if padding and not same:  # with strides, "same" padding is something else in TensorFlow
        x = keras.layers.ZeroPadding2D(padding)(x)
    return x, keras.layers.Conv2D(
        outputs,
        side,
        layer.strides,
        "same" if same else "valid",
        use_bias="bias" in weights,
        kernel_regularizer=regularizer,
    )
