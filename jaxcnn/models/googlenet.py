"""GoogLeNet."""

from collections.abc import Callable
from functools import partial

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import (
    AvgPool,
    Branches,
    ConvReLU,
    Dropout,
    GlobalAvgPool,
    LocalResponseNorm,
    MaxPool,
    he_normal,
)
from jaxcnn.models.plan import chain
from jaxcnn.models.shapes import feature_map, flat_size, flatten

# Szegedy et al. 2015, table 1: #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool proj.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class GoogLeNet(nnx.Module):
    """GoogLeNet: biases, no batch norm.

    The layers of `STEM`; the modules of `MODULES` with max pools 3×3 between 3b and 4a and between
    4e and 5a; a global average pool, dropout 0.4, dense 1000. With auxiliary heads it returns, in
    training, three arrays of logits, the main one first.

    References:
      Szegedy et al. 2015, *Going Deeper with Convolutions*, §5, table 1.
    """

    STEM = "64/7:2 P3:2c N 64/1 192 N P3:2c"

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        *,
        auxiliary: bool = False,
        rngs: nnx.Rngs,
    ):
        conv = partial(ConvReLU, rngs=rngs)
        # As in the authors' Caffe model, which divides α by 5.
        norm = LocalResponseNorm(radius=2, bias=1.0, alpha=1e-4 / 5, beta=0.75)
        self.stem, channels = chain(self.STEM, input_shape[2], conv, N=lambda _: norm)
        modules = {}
        for name, widths in MODULES.items():
            modules[name] = inception(channels, widths, conv)
            channels = sum(widths[column] for column in (0, 2, 4, 5))
        self.inception = nnx.Dict(modules)
        self.pool3 = MaxPool(3, 2, "CEIL")
        self.pool4 = MaxPool(3, 2, "CEIL")
        self.pool5 = GlobalAvgPool()
        self.dropout = Dropout(0.4, rngs=rngs)
        self.out = Linear(channels, num_classes, rngs=rngs)
        self.deterministic = False  # set by `nnx.Module.eval`
        self.auxiliary = auxiliary
        if auxiliary:
            shape_4a = feature_map(self.to_4a, input_shape)
            self.head1 = AuxiliaryHead(shape_4a, num_classes, rngs=rngs)
            shape_4d = feature_map(lambda x: self.to_4d(self.to_4a(x)), input_shape)
            self.head2 = AuxiliaryHead(shape_4d, num_classes, rngs=rngs)

    def to_4a(self, images: Array) -> Array:
        """From the images to the output of module 4a."""
        x = self.pool3(self._modules(self.stem(images), "3a", "3b"))
        return self._modules(x, "4a")

    def to_4d(self, x: Array) -> Array:
        """From the output of module 4a to that of module 4d."""
        return self._modules(x, "4b", "4c", "4d")

    def to_5b(self, x: Array) -> Array:
        """From the output of module 4d to that of module 5b."""
        return self._modules(self.pool4(self._modules(x, "4e")), "5a", "5b")

    def __call__(self, images: Array) -> Array | tuple[Array, Array, Array]:
        at_4a = self.to_4a(images)
        at_4d = self.to_4d(at_4a)
        logits = self.out(self.dropout(self.pool5(self.to_5b(at_4d))))
        if not self.auxiliary or self.deterministic:
            return logits
        return logits, self.head1(at_4a), self.head2(at_4d)

    def _modules(self, x: Array, *names: str) -> Array:
        for name in names:
            x = self.inception[name](x)
        return x


def inception(channels: int, widths: tuple[int, ...], conv: Callable) -> Branches:
    """The Inception module of figure 2b; `widths` is a row of `MODULES`."""
    direct, reduce3, out3, reduce5, out5, pooled = widths
    plans = (f"{direct}/1", f"{reduce3}/1 {out3}", f"{reduce5}/1 {out5}/5", f"P3:1s {pooled}/1")
    return Branches(*(chain(plan, channels, conv)[0] for plan in plans))


class AuxiliaryHead(nnx.Module):
    """A further classifier on a feature map, used in training only (§5).

    Average pool 5×5 with stride 3, conv 1×1×128, dense 1024, dropout 0.7, dense 1000.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, rngs: nnx.Rngs):
        self.pool = AvgPool(5, 3)
        self.conv = ConvReLU(input_shape[2], 128, 1, rngs=rngs)
        features = flat_size(lambda x: self.conv(self.pool(x)), input_shape)
        self.dense = Linear(features, 1024, kernel_init=he_normal, rngs=rngs)
        self.dropout = Dropout(0.7, rngs=rngs)
        self.out = Linear(1024, num_classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = nnx.relu(self.dense(flatten(self.conv(self.pool(x)))))
        return self.out(self.dropout(x))
