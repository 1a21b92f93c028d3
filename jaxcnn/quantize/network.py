"""A trained network into one whose dense layers and convolutions compute in 8-bit integers."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from jaxcnn.errors import InputError, require_known
from jaxcnn.quantize.layers import Int8Conv, Int8Linear, can_be_integers, layer_in_integers

BATCH = 64  # images that calibration looks at together


class Observed(nnx.Module):
    """A layer that notes how large its inputs are.

    Attributes:
      layer: the layer.
      percentile: of the absolute values of a batch.
      largest: ``f32[]``, that percentile, the largest of all batches; -1 before the first.
    """

    def __init__(self, layer: nnx.Module, percentile: float):
        self.layer = layer
        self.percentile = percentile
        self.largest = nnx.Variable(jnp.float32(-1))

    def __call__(self, inputs: Array) -> Array:
        sizes = jnp.abs(inputs.astype(jnp.float32))
        found = jnp.max(sizes) if self.percentile == 100 else jnp.percentile(sizes, self.percentile)
        self.largest[...] = jnp.maximum(self.largest[...], found)
        return self.layer(inputs)


def quantize(
    model: nnx.Module, images: Array, *, percentile: float = 100.0, keep: tuple[str, ...] = ()
) -> nnx.Module:
    """The network in 8-bit integers, by post-training quantisation; runs on CPU, GPU and TPU.

    Every `nnx.Linear` and every two-dimensional `nnx.Conv` that ran in calibration is exchanged, the first and the last too:
    in a small network they are most of it. Name them in `keep` where that costs accuracy. All else stays in float32:
    biases, batch norm (whose factor XLA fuses with the scales of the convolution before it), pools, activations; and layers
    that compute something of their own, such as a convolution with a mask, with circular padding or in one dimension.

    Args:
      model: trained, in float32; it stays as it is.
      images: ``[N, H, W, C]``, a few hundred, as the network gets them: normalised training images.
      percentile: of the absolute values that a layer sees in `BATCH` images; the largest of all batches becomes 127, what
        is larger is cut off. 100 is the largest value; 99.99 is better where a few values are far from all others.
      keep: dotted names of layers that stay in float32, as in ``("conv1", "out")``.

    Returns:
      A new network, in evaluation mode.

    Raises:
      InputError: no images, a percentile that is none, a name that is no such layer, nothing to exchange, or values that
        are not finite.

    References:
      Jacob et al. 2018, *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*, §2;
      Krishnamoorthi 2018, *Quantizing deep convolutional networks for efficient inference*, §3, for scales by channel.

    >>> model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.relu)
    >>> quantized_layers(quantize(model, jnp.ones((4, 2))))
    ('layers.0',)
    """
    if not len(images):
        raise InputError(
            "no images to calibrate with: a few hundred training images show how large the activations are"
        )
    if not 0 < percentile <= 100:
        raise InputError(f"percentile {percentile}: must lie above 0 and not above 100")
    known = _names(model, can_be_integers)
    for name in keep:
        require_known("layer", name, known)
    if not set(known) - set(keep):
        raise InputError(
            "no layer to compute in 8-bit integers: none is dense or a convolution over images and not kept"
        )
    observing = _exchanged(
        model,
        lambda name, layer: (
            Observed(layer, percentile) if name in known and name not in keep else layer
        ),
    )
    observing.eval()
    for start in range(0, len(images), BATCH):
        _look(observing, jnp.asarray(images[start : start + BATCH]))
    return _exchanged(observing, _in_integers)


def quantized_layers(model: nnx.Module) -> tuple[str, ...]:
    """Dotted names of the layers that compute in 8-bit integers."""
    return _names(model, lambda layer: isinstance(layer, Int8Conv | Int8Linear))


@nnx.jit
def _look(model: nnx.Module, images: Array) -> None:
    model(images)


def _in_integers(name: str, layer: Any) -> Any:
    """What was observed, in integers; a layer that was never called, such as a head for training alone, as it was."""
    if not isinstance(layer, Observed):
        return layer
    largest = float(layer.largest[...])
    if not np.isfinite(largest):
        raise InputError(
            f"layer {name!r} met values that are not finite in calibration: the network or its images are damaged"
        )
    return layer.layer if largest < 0 else layer_in_integers(layer.layer, largest)


def _exchanged(model: nnx.Module, change: Callable[[str, Any], Any]) -> nnx.Module:
    """A copy with other layers in the place of some; a layer that the network has in two places stays one."""
    return nnx.recursive_map(
        lambda path, node: change(".".join(map(str, path)), node), nnx.clone(model)
    )


def _names(model: nnx.Module, wanted: Callable[[Any], bool]) -> tuple[str, ...]:
    return tuple(".".join(map(str, path)) for path, node in nnx.iter_graph(model) if wanted(node))
