"""The peer Keras on TensorFlow: its own layers and optimisers, a step as one `tf.function`, compiled by XLA or not."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers import layers as of
from experiments.peers.layers import Layer, Task

if TYPE_CHECKING:
    import keras


class Keras:
    """A network in Keras.

    Attributes:
      xla: whether step and forward pass are compiled by XLA.
    """

    def __init__(self, task: Task, *, xla: bool = False):
        import tensorflow as tf  # Keras is told of its backend by the process's environment

        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(task.threads)
        self.model, optimizer = _network(task), _optimizer(task)
        optimizer.build(self.model.trainable_variables)
        self.images, self.labels = tf.constant(task.images), tf.constant(task.labels)
        self.step = tf.function(_step_of(self.model, optimizer, task.binary), jit_compile=xla)
        self.predict = tf.function(
            lambda images: self.model(images, training=False), jit_compile=xla
        )

    def logits(self) -> np.ndarray:
        """In evaluation, ``f32[N, outputs]``."""
        return self.predict(self.images).numpy()

    def losses(self, steps: int) -> list[float]:
        """Cross-entropy of each of the next steps, before its update."""
        return [float(self.step(self.images, self.labels)) for _ in range(steps)]

    def train(self, steps: int) -> None:
        """So many steps, finished."""
        for _ in range(steps):
            loss = self.step(self.images, self.labels)
        loss.numpy()

    def infer(self, calls: int) -> None:
        """So many forward passes, finished."""
        for _ in range(calls):
            logits = self.predict(self.images)
        logits.numpy()


def _step_of(model: "keras.Model", optimizer: "keras.Optimizer", binary: bool):
    """``step(images, labels)``: one update; the cross-entropy before it, ``f32[]``."""
    import keras
    import tensorflow as tf

    losses = keras.losses
    loss_of = (
        losses.BinaryCrossentropy(from_logits=True)
        if binary
        else losses.SparseCategoricalCrossentropy(from_logits=True)
    )

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = loss_of(labels[:, None] if binary else labels, logits)
            total = loss + sum(model.losses)  # the decay
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step


def _optimizer(task: Task) -> "keras.Optimizer":
    from keras import optimizers

    if task.optimizer == "adam":
        return optimizers.Adam(task.rate, epsilon=1e-8)
    return optimizers.SGD(task.rate, momentum=0.9 if task.optimizer == "momentum" else 0.0)


def _network(task: Task) -> "keras.Model":
    import keras

    images = keras.Input(task.images.shape[1:])
    return keras.Model(images, _chain(task.layers, task, images))


def _chain(layers: tuple[Layer, ...], task: Task, x: Any) -> Any:
    for layer in layers:
        x = _applied(layer, task, x)
    return x


def _applied(layer: Layer, task: Task, x: Any) -> Any:
    import tensorflow as tf
    from keras import layers

    match layer:
        case of.Conv() | of.Dense() | of.Norm():
            return _weighted(layer, task, x)
        case of.Activation(kind):
            kinds = {
                "relu": layers.ReLU,
                "tanh": lambda: layers.Activation("tanh"),
                "leaky_relu": lambda: layers.LeakyReLU(0.1),
            }
            return kinds[kind]()(x)
        case of.Pool(kind, window, strides, same):
            pool = {"max": layers.MaxPooling2D, "average": layers.AveragePooling2D}[kind]
            return pool(window, strides, "same" if same else "valid")(x)
        case of.ResponseNorm(radius, bias, alpha, beta):
            return layers.Lambda(
                lambda images: tf.nn.local_response_normalization(images, radius, bias, alpha, beta)
            )(x)
        case of.Dropout(rate):
            return layers.Dropout(rate)(x)
        case of.Flatten():
            return layers.Flatten()(x)
        case of.GlobalAverage():
            return layers.GlobalAveragePooling2D()(x)
        case of.Residual(body, shortcut):
            return layers.Add()([_chain(body, task, x), _chain(shortcut, task, x)])


def _weighted(layer: of.Conv | of.Dense | of.Norm, task: Task, x: Any) -> Any:
    from keras import layers, regularizers

    leaves = task.leaves(layer.name)
    if isinstance(layer, of.Norm):
        return _with(
            layers.BatchNormalization(momentum=layer.momentum, epsilon=layer.epsilon),
            x,
            leaves,
            "scale",
            "bias",
            "mean",
            "var",
        )
    weight_decay = regularizers.L2(task.weight_decay / 2) if task.decays(layer.name) else None
    if isinstance(layer, of.Dense):
        return _with(
            layers.Dense(leaves["kernel"].shape[1], kernel_regularizer=weight_decay),
            x,
            leaves,
            "kernel",
            "bias",
        )
    side, _, _, outputs = leaves["kernel"].shape
    padding = side // 2 if layer.padding is None else layer.padding
    same = padding == side // 2 and layer.strides == 1 and side % 2 == 1
    if padding and not same:  # what TensorFlow calls "same" is another thing under a stride
        x = layers.ZeroPadding2D(padding)(x)
    conv = layers.Conv2D(
        outputs,
        side,
        layer.strides,
        "same" if same else "valid",
        use_bias="bias" in leaves,
        kernel_regularizer=weight_decay,
    )
    return _with(conv, x, leaves, *(leaf for leaf in ("kernel", "bias") if leaf in leaves))


def _with(layer: Any, x: Any, leaves: dict[str, np.ndarray], *order: str) -> Any:
    """The layer applied, with its weights in the order in which Keras has them."""
    y = layer(x)
    layer.set_weights([leaves[leaf] for leaf in order])
    return y
