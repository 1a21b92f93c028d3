"""Layers that several networks share."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxcnn import ops
from jaxcnn.errors import InputError

Kernel = int | tuple[int, int]
Padding = str | int
Shape = tuple[int, ...]

he_normal = (
    nnx.initializers.he_normal()
)  # for layers before a ReLU (He et al. 2015, *Delving Deep into Rectifiers*, §2.2)


class Conv(nnx.Conv):
    """`nnx.Conv` over images ``[N, H, W, C]``, fast on every platform.

    Args:
      inputs, outputs: channels.
      kernel: side, or height and width.
      strides: of both axes.
      padding: ``SAME``, ``VALID``, or pixels on every side; half the kernel if not given.
      **options: of `nnx.Conv`, such as `use_bias`, `feature_group_count`, `kernel_init`.
    """

    computes_as_flax = True  # for `jaxcnn.quantize`

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Kernel = 3,
        strides: int = 1,
        padding: Padding | None = None,
        **options,
    ):
        sides = _pair(kernel)
        around = tuple((side // 2, side // 2) for side in sides) if padding is None else padding
        around = ((padding, padding),) * 2 if isinstance(padding, int) else around
        super().__init__(
            inputs,
            outputs,
            sides,
            strides,
            padding=around,
            conv_general_dilated=ops.conv_general_dilated,
            **options,
        )

    def __call__(self, images: Array) -> Array:
        """``[N, H, W, C]`` to ``[N, H', W', D]``; a bias's gradient is summed as fast as the platform can."""
        bias = self.bias[...] if self.use_bias else None
        images, kernel, bias = self.promote_dtype(
            (images, self.kernel[...], bias), dtype=self.dtype
        )
        images = self.conv_general_dilated(
            images,
            kernel,
            _pair(self.strides),
            self.padding,
            rhs_dilation=_pair(self.kernel_dilation),
            dimension_numbers=ops.NHWC,
            feature_group_count=self.feature_group_count,
            precision=self.precision,
        )
        return images if bias is None else ops.add_bias(images, bias)


class Linear(nnx.Linear):
    """`nnx.Linear`, fast on every platform; the arguments are the same."""

    def __init__(self, inputs: int, outputs: int, **options):
        super().__init__(inputs, outputs, dot_general=ops.dot_general, **options)


class BatchNorm(nnx.BatchNorm):
    """`nnx.BatchNorm` over the last axis, fast on every platform.

    Source: Ioffe & Szegedy 2015, *Batch Normalization*, algorithm 1.
    """

    def __call__(self, x: Array) -> Array:
        """Normalises ``x: [N, …, C]`` by its own statistics, or in evaluation by the running ones."""
        if self.use_running_average:
            return super().__call__(x)
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        count = x.size // x.shape[-1]
        moments = ops.channel_sums(wide) / count, ops.channel_sums(wide**2) / count
        mean, square = lax.pmean(moments, self.axis_name) if self.axis_name else moments
        variance = jnp.maximum(square - mean**2, 0)
        for running, seen in ((self.mean, mean), (self.var, variance)):
            running[...] = lax.stop_gradient(
                self.momentum * running[...] + (1 - self.momentum) * seen
            )
        factor = lax.rsqrt(variance + self.epsilon) * self.scale[...]
        return ops.normalize(x, mean, factor, self.bias[...])


class ConvReLU(nnx.Module):
    """Convolution with a bias, ReLU; the arguments are those of `Conv`."""

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
        if not isinstance(conv, Conv):  # watched, or in integers
            return nnx.relu(conv(images))
        images, kernel, bias = conv.promote_dtype(
            (images, conv.kernel[...], conv.bias[...]), dtype=conv.dtype
        )
        return ops.conv_relu(images, kernel, bias, _pair(conv.strides), conv.padding)


class ConvNorm(nnx.Module):
    """Convolution without bias, batch norm, activation: the unit of every network since 2015.

    Args:
      activation: None for none.
      epsilon, momentum: of batch norm.
      others: of `Conv`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Kernel = 3,
        strides: int = 1,
        padding: Padding | None = None,
        *,
        activation: Callable[[Array], Array] | None = nnx.relu,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        rngs: nnx.Rngs,
    ):
        self.conv = Conv(
            inputs,
            outputs,
            kernel,
            strides,
            padding,
            use_bias=False,
            kernel_init=he_normal,
            rngs=rngs,
        )
        self.norm = BatchNorm(outputs, epsilon=epsilon, momentum=momentum, rngs=rngs)
        self.activation = activation

    def __call__(self, images: Array) -> Array:
        x = self.norm(self.conv(images))
        return self.activation(x) if self.activation else x


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
    """`ops.avg_pool` as a layer; padding does not count in the mean."""

    window: int = 2
    strides: int | None = None
    padding: Padding = "VALID"

    def __call__(self, images: Array) -> Array:
        return ops.avg_pool(images, self.window, self.strides, self.padding, count_padding=False)


@dataclass(frozen=True)
class GlobalAvgPool:
    """The mean of each channel: ``[N, H, W, C]`` to ``[N, C]``, summed in float32."""

    def __call__(self, images: Array) -> Array:
        _require_pixels(images)
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
    """Several layers over the same images, their channels side by side (Szegedy et al. 2015, §4)."""

    def __init__(self, *branches: Callable[[Array], Array]):
        self.branches = nnx.List(branches)

    def __call__(self, images: Array) -> Array:
        return jnp.concatenate([branch(images) for branch in self.branches], axis=-1)


class Dropout(nnx.Module):
    """Dropout whose mask depends on the example's place in the global batch, not on the device it fell to.

    `nnx.Dropout` draws one mask for the array it sees. Under `pmap` each device would draw the same mask for its share,
    so the step would differ from the one on a single device. Here each example has a key of its own.

    Source: Srivastava et al. 2014, *Dropout*, §4, scaled while training.

    Attributes:
      deterministic: True in evaluation, set by `nnx.Module.eval`.
      axis_name: the mapped axis that the batch is spread over, set by the train step.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        if not 0 <= rate < 1:
            raise ValueError(f"dropout rate must be in [0, 1), got {rate}")
        self.rate = rate
        self.deterministic = False
        self.axis_name = None
        self.rngs = rngs["dropout"].fork()

    def __call__(self, x: Array) -> Array:
        """Zeroes features of ``x: [N, …]`` with probability `rate` and scales the rest by ``1 / (1 - rate)``."""
        if self.deterministic or self.rate == 0:
            return x
        first = lax.axis_index(self.axis_name) * len(x) if self.axis_name else 0
        keys = jax.vmap(jax.random.fold_in, (None, 0))(self.rngs(), first + jnp.arange(len(x)))
        keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - self.rate, x.shape[1:]))(keys)
        return jnp.where(keep, x / (1 - self.rate), 0)


def flatten(images: Array) -> Array:
    """``[N, H, W, C]`` to ``[N, H * W * C]``."""
    _require_pixels(images)
    return images.reshape(len(images), -1)


def feature_map(layers: Callable[[Array], Array], input_shape: Shape) -> Shape:
    """Height, width and channels of what `layers`, which must not draw or learn, make of an image of `input_shape`."""
    image = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    return jax.eval_shape(layers, image).shape[1:]


def flat_size(layers: Callable[[Array], Array], input_shape: Shape) -> int:
    """Features that `flatten` finds after `layers`; raises `ImagesTooSmallError` where nothing of the image is left."""
    return feature_map(lambda images: flatten(layers(images)), input_shape)[0]


class ImagesTooSmallError(InputError):
    """The images are smaller than what the network's convolutions and pools take away."""


def _require_pixels(images: Array) -> None:
    if 0 in images.shape[1:]:
        raise ImagesTooSmallError(
            "the images are too small: nothing of them is left after the network's convolutions and pools"
        )


def _pair(side: Kernel) -> tuple[int, int]:
    return (side, side) if isinstance(side, int) else side
