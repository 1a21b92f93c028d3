"""Quantizes a trained network: calibration, then replacement of its layers."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from jaxcnn.errors import InputError, require_known
from jaxcnn.quantize.layers import Int8Conv, Int8Linear, is_quantizable, quantize_layer

BATCH = 64  # images per calibration batch


class NothingToQuantizeError(InputError):
    """A network has no layer that can compute in 8-bit integers."""


class ObservedLayer(nnx.Module):
    """A layer that records how large its inputs are.

    Attributes:
      layer: the layer.
      percentile: which percentile of the absolute values of a batch is recorded.
      largest: ``f32[]``, the largest such percentile of all batches; -1 before the first batch.
    """

    def __init__(self, layer: nnx.Linear | nnx.Conv, percentile: float):
        self.layer = layer
        self.percentile = percentile
        self.largest = nnx.Variable(jnp.float32(-1))

    def __call__(self, inputs: Array) -> Array:
        sizes = jnp.abs(inputs.astype(jnp.float32))
        is_maximum = self.percentile == 100
        size = jnp.max(sizes) if is_maximum else jnp.percentile(sizes, self.percentile)
        self.largest[...] = jnp.maximum(self.largest[...], size)
        return self.layer(inputs)


def quantize(
    model: nnx.Module, images: Array, *, percentile: float = 100.0, keep: tuple[str, ...] = ()
) -> nnx.Module:
    """Quantizes a trained network to 8-bit integers; the result runs on CPU, GPU and TPU.

    Replaces every `nnx.Linear` and every two-dimensional `nnx.Conv` that ran in calibration, the
    first and the last included: in a small network they are most of the computation. Name them in
    `keep` where that costs accuracy.

    Everything else stays in float32: biases; batch norm, whose factor XLA fuses with the scales of
    the convolution before it; pools; activations; and layers with a computation of their own, such
    as a convolution with a mask, with circular padding or in one dimension.

    Args:
      model: a trained network in float32; it is not changed.
      images: calibration images ``[N, H, W, C]``, a few hundred, preprocessed as the network
        receives them: normalized training images.
      percentile: of the absolute values of a layer's inputs in a batch of `BATCH` images. The
        largest of all batches becomes 127, and larger inputs are clipped. 100 is the maximum; 99.99
        is better where a few values are far from all others.
      keep: dotted names of layers that stay in float32, such as ``("conv1", "out")``.

    Returns:
      A new network, in evaluation mode.

    Raises:
      NothingToQuantizeError: no layer to quantize.
      InputError: no images, an invalid percentile, an unknown layer in `keep`, or values that are
        not finite.

    References:
      Jacob et al. 2018, *Quantization and Training of Neural Networks for Efficient
      Integer-Arithmetic-Only Inference*, §2; Krishnamoorthi 2018, *Quantizing deep convolutional
      networks for efficient inference*, §3, for scales per channel.

    >>> model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.relu)
    >>> quantized_layers(quantize(model, jnp.ones((4, 2))))
    ('layers.0',)
    """
    if not len(images):
        raise InputError(
            "no images to calibrate with: a few hundred training images are needed to measure the "
            "range of the activations"
        )
    if not 0 < percentile <= 100:
        raise InputError(f"percentile {percentile}: must be above 0 and at most 100")
    names = _layers_to_quantize(model, keep)
    observed = _replace_layers(
        model, lambda name, layer: ObservedLayer(layer, percentile) if name in names else layer
    )
    observed.eval()
    for start in range(0, len(images), BATCH):
        _observe(observed, jnp.asarray(images[start : start + BATCH]))
    return _replace_layers(observed, _quantize_observed)


def quantized_layers(model: nnx.Module) -> tuple[str, ...]:
    """Dotted names of the layers that compute in 8-bit integers."""
    return _layer_names(model, lambda layer: isinstance(layer, Int8Conv | Int8Linear))


def _layers_to_quantize(model: nnx.Module, keep: tuple[str, ...]) -> set[str]:
    names = _layer_names(model, is_quantizable)
    for name in keep:
        require_known("layer", name, names)
    if not set(names) - set(keep):
        raise NothingToQuantizeError(
            "no layer to quantize: the network has no dense layer and no convolution over images "
            "that is not kept"
        )
    return set(names) - set(keep)


@nnx.jit
def _observe(model: nnx.Module, images: Array) -> None:
    model(images)


def _quantize_observed(name: str, layer: Any) -> Any:
    """Quantizes an observed layer, unless it was never called, like an auxiliary head."""
    if not isinstance(layer, ObservedLayer):
        return layer
    largest = float(layer.largest[...])
    if not np.isfinite(largest):
        raise InputError(
            f"layer {name!r} received values that are not finite during calibration: the weights "
            "or the images are damaged"
        )
    return layer.layer if largest < 0 else quantize_layer(layer.layer, largest)


def _replace_layers(model: nnx.Module, replace: Callable[[str, Any], Any]) -> nnx.Module:
    """A copy with some layers replaced; a layer that occurs twice in the network stays shared."""
    return nnx.recursive_map(
        lambda path, node: replace(".".join(map(str, path)), node), nnx.clone(model)
    )


def _layer_names(model: nnx.Module, predicate: Callable[[Any], bool]) -> tuple[str, ...]:
    return tuple(
        ".".join(map(str, path)) for path, node in nnx.iter_graph(model) if predicate(node)
    )
