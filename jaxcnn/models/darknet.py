"""Darknet-19, and the detector YOLOv2 on top of it."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.models.layers import Conv, ConvNorm, GlobalAvgPool
from jaxcnn.models.plan import chain
from jaxcnn.models.sequential import Layer, SequentialNetwork

leaky_relu = partial(nnx.leaky_relu, negative_slope=0.1)

# Redmon & Farhadi 2017, table 6: the layers before and after the feature map that YOLOv2 passes on.
FINE = "32 P  64 P  128 64/1 128 P  256 128/1 256 P  512 256/1 512 256/1 512"
COARSE = "P  1024 512/1 1024 512/1 1024"


class Darknet19(SequentialNetwork):
    """Darknet-19.

    The layers of `FINE` and `COARSE`: convolutions with batch norm and leaky ReLU, max pools 2×2.
    Then a 1×1 convolution to the classes and a global average pool.

    References:
      Redmon & Farhadi 2017, *YOLO9000: Better, Faster, Stronger*, §3, table 6.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.features = Features(input_shape[2], rngs=rngs)
        self.out = Conv(self.features.channels, num_classes, 1, rngs=rngs)
        self.pool = GlobalAvgPool()

    def sequence(self) -> tuple[Layer, ...]:
        return (self.features.fine, self.features.coarse, self.out, self.pool)


class Features(nnx.Module):
    """Darknet-19 without its classifier: two feature maps, 1/16 and 1/32 of the image's size."""

    def __init__(self, inputs: int, *, rngs: nnx.Rngs):
        self.fine, self.fine_channels = chain(FINE, inputs, conv_norm(rngs))
        self.coarse, self.channels = chain(COARSE, self.fine_channels, conv_norm(rngs))

    def __call__(self, images: Array) -> tuple[Array, Array]:
        fine = self.fine(images)
        return fine, self.coarse(fine)


class YOLOv2(nnx.Module):
    """YOLOv2: the feature maps of Darknet-19, then five predictions per cell.

    | layer                                                     | output at 416×416 |
    |-----------------------------------------------------------|-------------------|
    | two conv 3×3 on the coarse feature map                    | 13×13×1024        |
    | conv 1×1 on the fine feature map                          | 26×26×64          |
    | `reorganize`                                              | 13×13×256         |
    | conv 3×3 on the two results, concatenated                 | 13×13×1024        |
    | conv 1×1                                                  | 13×13×125         |

    Returns:
      Predictions ``f32[N, H/32, W/32, 5, 5 + classes]``: t_x, t_y, t_w, t_h, t_o and the class
      logits, for each of five anchors.

    References:
      Redmon & Farhadi 2017, *YOLO9000: Better, Faster, Stronger*, §2; Darknet's `yolov2-voc.cfg`.
    """

    ANCHORS = 5

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = conv_norm(rngs)
        self.features = Features(input_shape[2], rngs=rngs)
        self.coarse, channels = chain("1024 1024", self.features.channels, conv)
        self.passthrough, fine_channels = chain("64/1", self.features.fine_channels, conv)
        self.both, channels = chain("1024", channels + 4 * fine_channels, conv)
        self.out = Conv(channels, self.ANCHORS * (5 + num_classes), 1, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        fine, coarse = self.features(images)
        fine = reorganize(self.passthrough(fine))
        x = self.out(self.both(jnp.concatenate([fine, self.coarse(coarse)], axis=-1)))
        return x.reshape(*x.shape[:3], self.ANCHORS, -1)


def reorganize(x: Array) -> Array:
    """Darknet's `reorg` layer: ``[N, 2H, 2W, C]`` to ``[N, H, W, 4C]``.

    Not a plain space-to-depth: it reads the channels-first memory of its input as that of an array
    ``[C/4, 4H, 4W]``. The published weights were trained with it.
    """
    n, rows, columns, channels = x.shape
    x = x.transpose(0, 3, 1, 2).reshape(n, channels // 4, rows, 2, columns, 2)
    x = x.transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * channels, rows // 2, columns // 2)
    return x.transpose(0, 2, 3, 1)


def conv_norm(rngs: nnx.Rngs) -> Callable[..., ConvNorm]:
    """`ConvNorm` with Darknet's activation and momentum."""
    return partial(ConvNorm, activation=leaky_relu, momentum=0.99, rngs=rngs)
