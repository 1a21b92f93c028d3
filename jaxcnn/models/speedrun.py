"""A network that learns CIFAR-10 quickly."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from jaxcnn import ops
from jaxcnn.fast_layers import BatchNorm, Linear
from jaxcnn.models.layers import Conv, MaxPool
from jaxcnn.models.sequential import Layer, SequentialNetwork
from jaxcnn.models.shapes import require_pixels

gelu = partial(nnx.gelu, approximate=False)

WIDTHS = (64, 256, 256)
PATCH = 2  # side of the patches that are whitened
WHITENING_EPSILON = 5e-4  # added to the eigenvalues of pixels in 0 … 1 with unit variance
NORM_MOMENTUM = 0.6  # of the running statistics, which follow a short run quickly


class SpeedrunCNN(SequentialNetwork):
    """The network of *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, for any image size.

    | layer                                      | output       |
    |--------------------------------------------|--------------|
    | whitening 2×2, fixed, GELU                 | 31×31×24     |
    | conv 3×3, max pool 2×2, batch norm, GELU   | 15×15×64     |
    | conv 3×3, batch norm, GELU                 | 15×15×64     |
    | the same two layers                        | 7×7×256      |
    | the same two layers                        | 3×3×256      |
    | max pool over all pixels, dense            | 10           |

    The first filters of each 3×3 convolution begin as the identity. Batch norms have no scale. The
    weights of the last layer begin with a standard deviation of 1, and the logits are divided by
    the number of their inputs.

    The kernel of the first layer is not trained: it is random until `whiten` is called.

    References:
      Jordan 2024, *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, arXiv 2404.00498, §3.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        channels = input_shape[2]
        outputs = 2 * PATCH**2 * channels
        self.whitening = Conv(
            channels,
            outputs,
            PATCH,
            padding=0,
            use_bias=False,
            promote_dtype=_as_images,
            rngs=rngs,
        )
        kernel: Any = nnx.Variable(self.whitening.kernel[...])  # is not trained
        self.whitening.kernel = kernel
        blocks = []
        for width in WIDTHS:
            blocks.append(SpeedrunBlock(outputs, width, rngs=rngs))
            outputs = width
        self.blocks = nnx.Sequential(*blocks)
        init = nnx.initializers.normal(1.0)
        self.out = Linear(outputs, num_classes, use_bias=False, kernel_init=init, rngs=rngs)

    def whiten(self, images: Array) -> None:
        """Makes the first layer decorrelate these normalized images, ``f32[N, H, W, C]``."""
        self.whitening.kernel[...] = whitening_kernel(images)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.whitening, gelu, self.blocks, _largest_pixels, self.out, _scale)


class SpeedrunBlock(nnx.Module):
    """Two 3×3 convolutions, the first with a max pool (§3.2 of the paper)."""

    def __init__(self, inputs: int, width: int, *, rngs: nnx.Rngs):
        self.conv1 = _conv(inputs, width, rngs)
        self.pool = MaxPool(2)
        self.norm1 = _norm(width, rngs)
        self.conv2 = _conv(width, width, rngs)
        self.norm2 = _norm(width, rngs)

    def __call__(self, x: Array) -> Array:
        x = gelu(self.norm1(self.pool(self.conv1(x))))
        return gelu(self.norm2(self.conv2(x)))


def whitening_kernel(images: Array, epsilon: float = WHITENING_EPSILON) -> Array:
    """Filters that decorrelate the pixels of 2×2 patches, ``f32[2, 2, C, 8·C]``.

    The filters are the eigenvectors of the patches' covariance, each divided by the square root of
    its eigenvalue, followed by the same with the opposite sign.

    Args:
      images: normalized, ``f32[N, H, W, C]``.
      epsilon: added to the eigenvalues.

    References:
      Jordan 2024, §3.1, after Page 2019, *How to Train Your ResNet 8*.

    >>> whitening_kernel(np.random.default_rng(0).normal(size=(8, 4, 4, 3))).shape
    (2, 2, 3, 24)
    """
    pixels = np.asarray(images, np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (PATCH, PATCH), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, PATCH**2 * images.shape[-1])
    values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / np.sqrt(values + epsilon)).reshape(PATCH, PATCH, images.shape[-1], -1)
    return jnp.asarray(np.concatenate([filters, -filters], axis=-1), jnp.float32)


def identity_init(key: Array, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
    """Random kernels ``f32[H, W, C, D]`` whose first C filters each pass one channel on."""
    kernel = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")(key, shape, dtype)
    height, width, channels, outputs = shape
    count = min(channels, outputs)
    identity = jnp.zeros((height, width, channels, count), dtype)
    diagonal = jnp.arange(count)
    identity = identity.at[height // 2, width // 2, diagonal, diagonal].set(1)
    return kernel.at[..., :count].set(identity)


def _largest_pixels(x: Array) -> Array:
    """The largest value of each channel: ``[N, H, W, C]`` to ``[N, C]``."""
    require_pixels(x)
    # Not `jnp.max`, whose gradient is NaN where a compiler recomputes x with other rounding.
    return ops.max_pool(x, x.shape[1:3])[:, 0, 0]


def _as_images(arrays: tuple[Array, Array, None], **_: Any) -> tuple[Array, Array, None]:
    """Images, the kernel in the dtype of the images, and no bias.

    A train step casts parameters to its precision, and leaves a kernel that is not trained in
    float32, to which Flax would promote the images, and with them all later layers.
    """
    images, kernel, bias = arrays
    return images, kernel.astype(images.dtype), bias


def _scale(logits: Array) -> Array:
    return logits / WIDTHS[-1]


def _conv(inputs: int, outputs: int, rngs: nnx.Rngs) -> Conv:
    return Conv(inputs, outputs, 3, use_bias=False, kernel_init=identity_init, rngs=rngs)


def _norm(channels: int, rngs: nnx.Rngs) -> BatchNorm:
    return BatchNorm(channels, use_scale=False, epsilon=1e-12, momentum=NORM_MOMENTUM, rngs=rngs)
