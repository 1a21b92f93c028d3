"""Darknet-19, and YOLOv2 on top of it."""

from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxcnn.models.layers import Conv, ConvNorm, GlobalAvgPool
from jaxcnn.models.plan import chain

leaky_relu = partial(nnx.leaky_relu, negative_slope=0.1)

# Redmon & Farhadi 2017, table 6, up to and after the place from which YOLOv2 passes features on.
FINE = "32 P  64 P  128 64/1 128 P  256 128/1 256 P  512 256/1 512 256/1 512"
COARSE = "P  1024 512/1 1024 512/1 1024"


class Darknet19(nnx.Module):
    """Darknet-19 (system C3: Redmon & Farhadi 2017, *YOLO9000: Better, Faster, Stronger*, §3, table 6).

    `FINE`, `COARSE`: convolutions with batch norm and leaky ReLU, max pools 2×2; then conv 1×1 to the classes, global average.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.features = Features(input_shape[2], rngs=rngs)
        self.out = Conv(self.features.channels, num_classes, 1, rngs=rngs)
        self.pool = GlobalAvgPool()

    def __call__(self, images: Array) -> Array:
        _, coarse = self.features(images)
        return self.pool(self.out(coarse))


class Features(nnx.Module):
    """Darknet-19 without its classifier: feature maps of a sixteenth and of a thirty-second of the image's size."""

    def __init__(self, inputs: int, *, rngs: nnx.Rngs):
        self.fine, self.fine_channels = chain(FINE, inputs, conv_norm(rngs))
        self.coarse, self.channels = chain(COARSE, self.fine_channels, conv_norm(rngs))

    def __call__(self, images: Array) -> tuple[Array, Array]:
        fine = self.fine(images)
        return fine, self.coarse(fine)


class YOLOv2(nnx.Module):
    """YOLOv2 (system C5: Redmon & Farhadi 2017, §2; Darknet's `yolov2-voc.cfg`).

    Two more 3×3×1024 convolutions; the finer feature map passed on by a 1×1×64 convolution and `reorganise`; a 3×3×1024
    convolution over both; a 1×1 convolution to five predictions a cell.

    Returns:
      ``f32[N, H/32, W/32, 5, 5 + classes]``: t_x, t_y, t_w, t_h, t_o and the class logits, for each of five anchors.
    """

    ANCHORS = 5

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = conv_norm(rngs)
        self.features = Features(input_shape[2], rngs=rngs)
        self.coarse, channels = chain("1024 1024", self.features.channels, conv)
        self.passthrough, passed = chain("64/1", self.features.fine_channels, conv)
        self.both, channels = chain("1024", channels + 4 * passed, conv)
        self.out = Conv(channels, self.ANCHORS * (5 + num_classes), 1, rngs=rngs)

    def __call__(self, images: Array) -> Array:
        fine, coarse = self.features(images)
        passed = reorganise(self.passthrough(fine))
        x = self.out(self.both(jnp.concatenate([passed, self.coarse(coarse)], axis=-1)))
        return x.reshape(*x.shape[:3], self.ANCHORS, -1)


def reorganise(x: Array) -> Array:
    """Darknet's `reorg` layer: ``[N, 2H, 2W, C]`` to ``[N, H, W, 4C]``.

    Not a plain space-to-depth: it reads the channels-first memory of its input as that of a ``[C/4, 4H, 4W]`` one, and
    published weights were trained so.
    """
    n, rows, columns, channels = x.shape
    x = x.transpose(0, 3, 1, 2).reshape(n, channels // 4, rows, 2, columns, 2)
    x = x.transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * channels, rows // 2, columns // 2)
    return x.transpose(0, 2, 3, 1)


def conv_norm(rngs: nnx.Rngs):
    return partial(ConvNorm, activation=leaky_relu, momentum=0.99, rngs=rngs)
