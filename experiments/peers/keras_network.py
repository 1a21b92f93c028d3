"""A network in Keras's own layers, built from its layers, with its weights."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers import layers
from experiments.peers.layers import Layer, WithWeights
from experiments.peers.task import Task

if TYPE_CHECKING:
    import keras


def build_network(task: Task) -> "keras.Model":
    """The network of a task, with its weights."""
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
        case layers.Residual(body, shortcut):
            return keras.layers.Add()(
                [_apply_chain(branch, task, x) for branch in (body, shortcut)]
            )
        case layers.Gate(body):
            return keras.layers.Multiply()([x, _apply_chain(body, task, x)])
        case layers.Concatenation(branches):
            return keras.layers.Concatenate()(
                [_apply_chain(branch, task, x) for branch in branches]
            )
        case layers.Activation():
            return _activation(layer)(x)
        case layers.Pool():
            return _pool(layer, x)
        case layers.ResponseNorm():
            return _response_norm(layer)(x)
        case layers.Dropout(rate):
            return keras.layers.Dropout(rate)(x)
        case layers.Flatten():
            return keras.layers.Flatten()(x)
        case layers.GlobalAverage(keep_axes):
            return _of_axes("GlobalAveragePooling", x)(keepdims=keep_axes)(x)
        case layers.Conv():
            return _convolve(layer, task, x)
        case _:
            return _apply_with_weights(layer, task, x)


def _of_axes(name: str, x: Any) -> Any:
    """Keras's layer of this name for images with as many axes as those of `x`."""
    import keras

    return getattr(keras.layers, f"{name}{len(x.shape) - 2}D")


def _activation(layer: layers.Activation) -> "keras.Layer":
    import keras

    if layer.kind == "relu":
        return keras.layers.ReLU()
    if layer.kind == "relu6":
        return keras.layers.ReLU(max_value=6.0)
    if layer.kind == "leaky_relu":
        return keras.layers.LeakyReLU(0.1)
    return keras.layers.Activation(layer.kind)  # its GELU is exact by default


def _pool(layer: layers.Pool, x: Any) -> Any:
    import keras
    import tensorflow as tf

    pads = [layer.pads(side) for side in x.shape[1:-1]]
    padding = "same" if layer.padding == "same" else "valid"
    if padding == "valid" and any(end for _, end in pads):
        pads = [(0, 0), *pads, (0, 0)]
        x = keras.layers.Lambda(lambda x: tf.pad(x, pads, constant_values=x.dtype.min))(x)
    kind = {"max": "MaxPooling", "average": "AveragePooling"}[layer.kind]
    return _of_axes(kind, x)(layer.window, layer.strides, padding)(x)


def _response_norm(layer: layers.ResponseNorm) -> "keras.Layer":
    import keras
    import tensorflow as tf

    return keras.layers.Lambda(
        lambda images: tf.nn.local_response_normalization(
            images, layer.radius, layer.bias, layer.alpha, layer.beta
        )
    )


def _apply_with_weights(layer: WithWeights, task: Task, x: Any) -> Any:
    """The layer applied to `x`, its weights set in the order that Keras requires."""
    import keras

    weights = task.layer_weights(layer.name)
    match layer:
        case layers.Norm(_, epsilon, momentum):
            module = keras.layers.BatchNormalization(momentum=momentum, epsilon=epsilon)
            order: tuple[str, ...] = ("scale", "bias", "mean", "var")
        case layers.LayerNorm(_, epsilon):
            module = keras.layers.LayerNormalization(epsilon=epsilon)
            order = ("scale", "bias")
        case layers.Scale():
            module, order = _scale(), ("scale",)
        case _:
            units = weights["kernel"].shape[1]
            decay = _regularizer(task, layer.name)
            module = keras.layers.Dense(units, kernel_regularizer=decay)
            order = ("kernel", "bias")
    return _set_weights(module, [weights[name] for name in order], x)


def _regularizer(task: Task, name: str) -> Any:
    import keras

    return keras.regularizers.L2(task.weight_decay / 2) if task.has_weight_decay(name) else None


def _scale() -> "keras.Layer":
    import keras

    class Scale(keras.layers.Layer):
        """A factor for each channel."""

        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.scale

    return Scale()


def _convolve(layer: layers.Conv, task: Task, x: Any) -> Any:
    import keras

    weights, decay = task.layer_weights(layer.name), _regularizer(task, layer.name)
    *sides, inputs, outputs = weights["kernel"].shape
    pads = layer.pads(sides)
    same = layer.strides == 1 and all(
        2 * pixels + 1 == side for pixels, side in zip(pads, sides, strict=True)
    )
    if any(pads) and not same:  # with strides, "same" padding is something else in TensorFlow
        x = _of_axes("ZeroPadding", x)(pads)(x)
    options = {
        "strides": layer.strides,
        "padding": "same" if same else "valid",
        "use_bias": "bias" in weights,
    }
    if inputs == 1 < layer.groups:
        multiplier = outputs // layer.groups
        module = keras.layers.DepthwiseConv2D(
            sides, depth_multiplier=multiplier, depthwise_regularizer=decay, **options
        )
        kernel = weights["kernel"].reshape(*sides, layer.groups, multiplier)
        return _set_weights(module, [kernel, *_bias(weights)], x)
    return _convolve_groups(layer, weights, options | {"kernel_regularizer": decay}, x)


def _convolve_groups(
    layer: layers.Conv, weights: dict[str, np.ndarray], options: dict[str, Any], x: Any
) -> Any:
    """Convolutions of the groups side by side.

    TensorFlow has no gradient of grouped convolutions on a CPU.
    """
    import keras

    parts = [x] if layer.groups == 1 else keras.ops.split(x, layer.groups, axis=-1)
    kernels = np.split(weights["kernel"], layer.groups, axis=-1)
    biases = [np.split(bias, layer.groups) for bias in _bias(weights)]
    results = []
    for number, (part, kernel) in enumerate(zip(parts, kernels, strict=True)):
        module = _of_axes("Conv", x)(kernel.shape[-1], kernel.shape[:-2], **options)
        arrays = [kernel, *(bias[number] for bias in biases)]
        results.append(_set_weights(module, arrays, part))
    return results[0] if len(results) == 1 else keras.layers.Concatenate()(results)


def _bias(weights: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [weights["bias"]] if "bias" in weights else []


def _set_weights(module: "keras.Layer", weights: list[np.ndarray], x: Any) -> Any:
    """The layer applied to `x`, which builds it; then it gets its weights."""
    y = module(x)
    module.set_weights(weights)
    return y
