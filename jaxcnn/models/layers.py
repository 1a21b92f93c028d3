"""Layers that several networks share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn import fast_layers, ops
from jaxcnn.fast_layers import BatchNorm
from jaxcnn.models.shapes import require_pixels

Kernel = int | tuple[int, int]
Padding = str | int

# For layers before a ReLU (He et al. 2015, *Delving Deep into Rectifiers*, §2.2).
he_normal = nnx.initializers.he_normal()

# The activations that batch norm computes with its own result, by the range that they clip to.
CLIPS: dict[Callable | None, ops.Clip] = {nnx.relu: ops.RELU, nnx.relu6: ops.RELU6}


class Conv(fast_layers.Conv):
    """`nnx.Conv` over images ``[N, H, W, C]``, fast on every platform.

    Args:
      inputs, outputs: numbers of channels.
      kernel: side of the kernel, or its height and width.
      strides: stride along both axes.
      padding: ``SAME``, ``VALID``, or pixels on every side; half the kernel by default.
      **options: of `nnx.Conv`, such as `use_bias`, `feature_group_count` and `kernel_init`.

    >>> conv = Conv(3, 8, 5, strides=2, rngs=nnx.Rngs(0))
    >>> conv(jnp.ones((1, 32, 32, 3))).shape
    (1, 16, 16, 8)
    """

    strides: int | tuple[int, int]
    padding: str | tuple[tuple[int, int], tuple[int, int]]
    kernel_dilation: int | tuple[int, int]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Kernel = 3,
        strides: int = 1,
        padding: Padding | None = None,
        **options,
    ):
        height, width = _pair(kernel)
        pads: Any = padding
        if padding is None:
            pads = ((height // 2, height // 2), (width // 2, width // 2))
        elif isinstance(padding, int):
            pads = ((padding, padding), (padding, padding))
        super().__init__(
            inputs,
            outputs,
            (height, width),
            strides,
            padding=pads,
            **options,
        )


class ConvReLU(nnx.Module):
    """A convolution with a bias, then ReLU; the arguments are those of `Conv`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Kernel = 3,
        strides: int = 1,
        padding: Padding | None = None,
        *,
        rngs: nnx.Rngs,
    ):
        self.conv = Conv(
            inputs, outputs, kernel, strides, padding, kernel_init=he_normal, rngs=rngs
        )

    def __call__(self, images: Array) -> Array:
        conv = self.conv
        if not isinstance(conv, Conv):  # replaced, as by `jaxcnn.quantize`
            return nnx.relu(conv(images))
        images, kernel, bias = conv.promote_dtype(
            (conv.gather(images), conv.kernel[...], conv.bias[...]), dtype=conv.dtype
        )
        strides = _pair(conv.strides)
        images = ops.conv_relu(images, kernel, bias, strides, conv.padding, conv.precision)
        return conv.divide(images)


class ConvNorm(nnx.Module):
    """A convolution without bias, then batch norm and an activation.

    Args:
      inputs, outputs, kernel, strides, padding: of `Conv`.
      groups: of channels; `inputs` for a depthwise convolution.
      activation: None for none.
      epsilon, momentum: of batch norm.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Kernel = 3,
        strides: int = 1,
        padding: Padding | None = None,
        *,
        groups: int = 1,
        activation: Callable[[Array], Array] | None = nnx.relu,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        rngs: nnx.Rngs,
    ):
        options = {"use_bias": False, "kernel_init": he_normal, "rngs": rngs}
        self.conv = Conv(
            inputs, outputs, kernel, strides, padding, feature_group_count=groups, **options
        )
        self.norm = BatchNorm(outputs, epsilon=epsilon, momentum=momentum, rngs=rngs)
        self.activation = activation

    def __call__(self, images: Array) -> Array:
        return normalize(self.norm, self.conv(images), self.activation)


@dataclass(frozen=True)
class MaxPool:
    """`ops.max_pool` as a layer."""

    window: int = 2
    strides: int | None = None
    padding: Padding = "VALID"

    def __call__(self, images: Array) -> Array:
        return ops.max_pool(images, self.window, self.strides, self.padding)


@dataclass(frozen=True)
class AvgPool:
    """`ops.avg_pool` as a layer; padding pixels do not count in the mean."""

    window: int = 2
    strides: int | None = None
    padding: Padding = "VALID"

    def __call__(self, images: Array) -> Array:
        return ops.avg_pool(images, self.window, self.strides, self.padding, count_padding=False)


@dataclass(frozen=True)
class GlobalAvgPool:
    """The mean of each channel: ``[N, H, W, C]`` to ``[N, C]``, summed in float32."""

    def __call__(self, images: Array) -> Array:
        require_pixels(images)
        return jnp.mean(images, axis=(1, 2), dtype=jnp.float32).astype(images.dtype)


@dataclass(frozen=True)
class LocalResponseNorm:
    """`ops.local_response_norm` as a layer."""

    radius: int
    bias: float
    alpha: float
    beta: float

    def __call__(self, images: Array) -> Array:
        return ops.local_response_norm(images, self.radius, self.bias, self.alpha, self.beta)


class Branches(nnx.Module):
    """Several layers over the same images, their outputs concatenated along the channels.

    References:
      Szegedy et al. 2015, *Going Deeper with Convolutions*, §4.
    """

    def __init__(self, *branches: Callable[[Array], Array]):
        self.branches = nnx.List(branches)

    def __call__(self, images: Array) -> Array:
        return jnp.concatenate([branch(images) for branch in self.branches], axis=-1)


class Dropout(nnx.Module):
    """Dropout whose masks depend on an example's position in the global batch.

    `nnx.Dropout` draws one mask for the array it is called with. Under `jax.pmap` every device
    would draw the same mask for its share of the batch, and the step would differ from that of a
    single device. Here each example has its own key.

    Attributes:
      rate: the probability that a feature is set to zero.
      deterministic: True in evaluation; set by `nnx.Module.eval`.
      batch_rows: ``i32[N]``, the position of each row of the input in the global batch; set by the
        train step. None for 0, 1, 2, …

    References:
      Srivastava et al. 2014, *Dropout*, §4, with scaling during training.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        if not 0 <= rate < 1:
            raise ValueError(f"dropout rate must be in [0, 1), got {rate}")
        self.rate = rate
        self.deterministic = False
        self.batch_rows: Array | None = None
        self.rngs = rngs["dropout"].fork()

    def __call__(self, x: Array) -> Array:
        """Sets features of ``x: [N, …]`` to zero and scales the others by ``1 / (1 - rate)``."""
        if self.deterministic or self.rate == 0:
            return x
        keys = example_keys(self.rngs(), len(x), self.batch_rows)
        keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - self.rate, x.shape[1:]))(keys)
        return jnp.where(keep, x / (1 - self.rate), 0)


def example_keys(key: Array, count: int, batch_rows: Array | None) -> Array:
    """A key for each example, folded from its index in the global batch, ``key[count]``.

    Args:
      key: of the whole batch.
      count: the number of examples that this program works on.
      batch_rows: ``i32[count]``, their indices; None for 0, 1, 2, …
    """
    rows = jnp.arange(count) if batch_rows is None else batch_rows
    return jax.vmap(jax.random.fold_in, (None, 0))(key, rows)


def normalize(norm: Any, x: Array, activation: Callable[[Array], Array] | None) -> Array:
    """Batch norm, then an activation or None; in training in one pass where it clips."""
    is_plain = isinstance(norm, BatchNorm)  # not replaced, as by `jaxcnn.quantize`
    if is_plain and activation in CLIPS and not norm.use_running_average:
        return norm.train_with(x, CLIPS[activation])
    x = norm(x)
    return activation(x) if activation else x


def _pair(sides: Kernel) -> tuple[int, int]:
    return (sides, sides) if isinstance(sides, int) else sides
