"""The networks once more, from their papers' tables and by arithmetic alone: shapes, parameters and multiply-adds.

Nothing here uses the project or JAX, so that `test_models.py` compares two independent readings of each paper.
"""

import copy
import math
from collections.abc import Callable


class Walk:
    """A walk through a network: the current shape, and what the layers passed so far hold and cost."""

    def __init__(self, rows: int, columns: int, channels: int):
        self.rows, self.columns, self.channels = rows, columns, channels
        self.trainable = self.fixed = self.macs = 0

    def conv(
        self,
        outputs: int,
        high: int = 3,
        wide: int | None = None,
        *,
        stride=1,
        valid=False,
        norm=False,
        bias=True,
        groups=1,
    ):
        wide = wide or high
        pads = (0, 0) if valid else (high // 2, wide // 2)
        self.rows = (self.rows + 2 * pads[0] - high) // stride + 1
        self.columns = (self.columns + 2 * pads[1] - wide) // stride + 1
        weights = high * wide * (self.channels // groups) * outputs
        self.macs += self.rows * self.columns * weights
        self.trainable += weights + (2 * outputs if norm else outputs if bias else 0)
        self.fixed += 2 * outputs if norm else 0
        self.channels = outputs
        return self

    def pool(self, window: int = 2, stride: int | None = None, *, pad: int = 0, ceil: bool = False):
        stride = stride or window
        rounded = math.ceil if ceil else math.floor
        self.rows = rounded((self.rows + 2 * pad - window) / stride) + 1
        self.columns = rounded((self.columns + 2 * pad - window) / stride) + 1
        return self

    def flatten(self):
        self.channels *= self.rows * self.columns
        self.rows = self.columns = 1
        return self

    def average(self):
        self.rows = self.columns = 1
        return self

    def dense(self, outputs: int, *, norm: bool = False):
        self.trainable += (self.channels + 1) * outputs + (2 * outputs if norm else 0)
        self.fixed += 2 * outputs if norm else 0
        self.macs += self.channels * outputs
        self.channels = outputs
        return self

    def branches(self, *branches: Callable[["Walk"], "Walk"]):
        """Side by side over the same shape; channels, parameters and costs add up."""
        start, ends = copy.copy(self), []
        for branch in branches:
            walk = copy.copy(start)
            walk.trainable = walk.fixed = walk.macs = 0
            ends.append(branch(walk))
        assert len({(end.rows, end.columns) for end in ends}) == 1, (
            "branches end in different shapes"
        )
        self.rows, self.columns = ends[0].rows, ends[0].columns
        self.channels = sum(end.channels for end in ends)
        for name in ("trainable", "fixed", "macs"):
            setattr(self, name, getattr(start, name) + sum(getattr(end, name) for end in ends))
        return self


def logistic() -> Walk:
    return Walk(28, 28, 1).flatten().dense(10)


def mlp(width: int = 512) -> Walk:
    return Walk(28, 28, 1).flatten().dense(width).dense(width).dense(10)


def lenet5() -> Walk:
    walk = (
        Walk(32, 32, 1)
        .conv(6, 5, valid=True)
        .pool()
        .conv(16, 5, valid=True)
        .pool()
        .conv(120, 5, valid=True)
    )
    return walk.flatten().dense(84).dense(10)


def lenet5_rbf() -> Walk:
    walk = lenet5()
    walk.trainable -= 85 * 10
    walk.fixed += 84 * 10
    walk.macs -= 84 * 10  # squared distances are no product
    return walk


def lenet_like() -> Walk:
    walk = Walk(32, 32, 1).conv(6, 3, valid=True).pool().conv(16, 3, valid=True).pool()
    return walk.flatten().dense(120).dense(84).dense(10)


def mnist_cnn() -> Walk:
    return (
        Walk(28, 28, 1)
        .conv(32, valid=True)
        .pool()
        .conv(64, valid=True)
        .pool()
        .flatten()
        .dense(128)
        .dense(10)
    )


def deep_mnist() -> Walk:
    return Walk(28, 28, 1).conv(32, 5).pool().conv(64, 5).pool().flatten().dense(1024).dense(10)


def cifar_tutorial() -> Walk:
    walk = Walk(24, 24, 3).conv(64, 5).pool(3, 2, ceil=True).conv(64, 5).pool(3, 2, ceil=True)
    return walk.flatten().dense(384).dense(192).dense(10)


def convolutions(walk: Walk, *groups: tuple[int, ...], pools: tuple[int, ...]) -> Walk:
    for widths, pool in zip(groups, pools, strict=True):
        for width in widths:
            walk.conv(width)
        walk.pool(pool)
    return walk


def cats_vs_dogs() -> Walk:
    groups = (32,) * 2, (64,) * 2, (128,) * 3, (256,) * 3, (512,) * 3
    walk = convolutions(Walk(256, 256, 3), *groups, pools=(2, 2, 2, 3, 3))
    return walk.flatten().dense(2048, norm=True).dense(2048, norm=True).dense(1)


def vgg(*counts: int) -> Walk:
    groups = [
        (width,) * count for width, count in zip((64, 128, 256, 512, 512), counts, strict=True)
    ]
    walk = convolutions(Walk(224, 224, 3), *groups, pools=(2,) * 5)
    return walk.flatten().dense(4096).dense(4096).dense(1000)


def alexnet() -> Walk:
    walk = (
        Walk(227, 227, 3)
        .conv(96, 11, stride=4, valid=True)
        .pool(3, 2)
        .conv(256, 5, groups=2)
        .pool(3, 2)
    )
    walk.conv(384).conv(384, groups=2).conv(256, groups=2).pool(3, 2)
    return walk.flatten().dense(4096).dense(4096).dense(1000)


def darknet_features(walk: Walk, stages: tuple[tuple[int, ...], ...]) -> Walk:
    """Stages of alternating 3×3 and 1×1 convolutions, a pool before each."""
    for widths in stages:
        walk.pool()
        for place, width in enumerate(widths):
            walk.conv(width, 1 if place % 2 else 3, norm=True)
    return walk


def darknet19(side: int = 256) -> Walk:
    walk = darknet_features(
        Walk(side, side, 3).conv(32, norm=True), ((64,), (128, 64, 128), (256, 128, 256))
    )
    darknet_features(walk, ((512, 256, 512, 256, 512), (1024, 512, 1024, 512, 1024)))
    return walk.conv(1000, 1).average()


def yolov2() -> Walk:
    walk = darknet_features(
        Walk(416, 416, 3).conv(32, norm=True), ((64,), (128, 64, 128), (256, 128, 256))
    )
    darknet_features(walk, ((512, 256, 512, 256, 512),))

    def coarse(walk: Walk) -> Walk:
        return (
            darknet_features(walk, ((1024, 512, 1024, 512, 1024),))
            .conv(1024, norm=True)
            .conv(1024, norm=True)
        )

    def passthrough(walk: Walk) -> Walk:
        walk.conv(64, 1, norm=True)
        walk.rows, walk.columns, walk.channels = (
            walk.rows // 2,
            walk.columns // 2,
            walk.channels * 4,
        )
        return walk

    return walk.branches(coarse, passthrough).conv(1024, norm=True).conv(5 * 25, 1)


def inception(
    walk: Walk, direct: int, reduce3: int, out3: int, reduce5: int, out5: int, pooled: int
) -> Walk:
    return walk.branches(
        lambda w: w.conv(direct, 1),
        lambda w: w.conv(reduce3, 1).conv(out3, 3),
        lambda w: w.conv(reduce5, 1).conv(out5, 5),
        lambda w: w.conv(pooled, 1),
    )


def googlenet(auxiliary: bool = False) -> Walk:
    walk = (
        Walk(224, 224, 3)
        .conv(64, 7, stride=2)
        .pool(3, 2, ceil=True)
        .conv(64, 1)
        .conv(192)
        .pool(3, 2, ceil=True)
    )
    inception(walk, 64, 96, 128, 16, 32, 32)
    inception(walk, 128, 128, 192, 32, 96, 64)
    inception(walk.pool(3, 2, ceil=True), 192, 96, 208, 16, 48, 64)
    heads = [auxiliary_head(walk)]
    inception(walk, 160, 112, 224, 24, 64, 64)
    inception(walk, 128, 128, 256, 24, 64, 64)
    inception(walk, 112, 144, 288, 32, 64, 64)
    heads.append(auxiliary_head(walk))
    inception(walk, 256, 160, 320, 32, 128, 128)
    inception(walk.pool(3, 2, ceil=True), 256, 160, 320, 32, 128, 128)
    inception(walk, 384, 192, 384, 48, 128, 128).average().dense(1000)
    walk.trainable += sum(heads) if auxiliary else 0
    return walk


def auxiliary_head(walk: Walk) -> int:
    """Its parameters; in inference it costs nothing."""
    assert (walk.rows, walk.columns) == (14, 14)
    return (
        Walk(14, 14, walk.channels)
        .pool(5, 3)
        .conv(128, 1)
        .flatten()
        .dense(1024)
        .dense(1000)
        .trainable
    )


def resnet(counts: tuple[int, ...], bottleneck: bool, *, small: bool = False) -> Walk:
    walk = (
        Walk(32, 32, 3).conv(64, norm=True)
        if small
        else Walk(224, 224, 3).conv(64, 7, stride=2, norm=True).pool(3, 2, pad=1)
    )
    for stage, count in enumerate(counts):
        for number in range(count):
            residual(walk, 64 * 2**stage, 2 if stage and not number else 1, bottleneck)
    return walk.average().dense(10 if small else 1000)


def residual(walk: Walk, width: int, stride: int, bottleneck: bool) -> Walk:
    outputs, inputs = width * (4 if bottleneck else 1), walk.channels
    around = copy.copy(walk)
    if bottleneck:
        walk.conv(width, 1, norm=True).conv(width, 3, stride=stride, norm=True).conv(
            outputs, 1, norm=True
        )
    else:
        walk.conv(width, 3, stride=stride, norm=True).conv(width, 3, norm=True)
    if stride != 1 or inputs != outputs:
        around.trainable = around.fixed = around.macs = 0
        around.conv(outputs, 1, stride=stride, norm=True)
        walk.trainable, walk.fixed, walk.macs = (
            walk.trainable + around.trainable, walk.fixed + around.fixed, walk.macs + around.macs
        )  # fmt: skip
    return walk


def c(outputs: int, high: int, wide: int | None = None, **options) -> Callable[[Walk], Walk]:
    return lambda walk: walk.conv(outputs, high, wide, norm=True, **options)


def then(*layers: Callable[[Walk], Walk]) -> Callable[[Walk], Walk]:
    def run(walk: Walk) -> Walk:
        for layer in layers:
            walk = layer(walk)
        return walk

    return run


def shrink(walk: Walk) -> Walk:
    return walk.pool(3, 2)


def same(walk: Walk) -> Walk:
    return walk


def inception_v4() -> Walk:
    down = {"stride": 2, "valid": True}
    walk = then(c(32, 3, **down), c(32, 3, valid=True), c(64, 3))(Walk(299, 299, 3))
    walk.branches(shrink, c(96, 3, **down))
    walk.branches(
        then(c(64, 1), c(96, 3, valid=True)),
        then(c(64, 1), c(64, 1, 7), c(64, 7, 1), c(96, 3, valid=True)),
    )
    walk.branches(c(192, 3, **down), shrink)
    for _ in range(4):
        walk.branches(
            c(96, 1),
            then(c(64, 1), c(96, 3)),
            then(c(64, 1), c(96, 3), c(96, 3)),
            then(same, c(96, 1)),
        )
    walk.branches(c(384, 3, **down), then(c(192, 1), c(224, 3), c(256, 3, **down)), shrink)
    for _ in range(7):
        walk.branches(
            c(384, 1),
            then(c(192, 1), c(224, 1, 7), c(256, 7, 1)),
            then(c(192, 1), c(192, 7, 1), c(224, 1, 7), c(224, 7, 1), c(256, 1, 7)),
            c(128, 1),
        )
    walk.branches(
        then(c(192, 1), c(192, 3, **down)),
        then(c(256, 1), c(256, 1, 7), c(320, 7, 1), c(320, 3, **down)),
        shrink,
    )

    def fork(walk: Walk) -> Walk:
        return walk.branches(c(256, 1, 3), c(256, 3, 1))

    for _ in range(3):
        walk.branches(
            c(256, 1),
            then(c(384, 1), fork),
            then(c(384, 1), c(448, 3, 1), c(512, 1, 3), fork),
            c(256, 1),
        )
    return walk.average().dense(1000)


def inception_resnet_v2() -> Walk:
    down = {"stride": 2, "valid": True}
    walk = then(
        c(32, 3, **down),
        c(32, 3, valid=True),
        c(64, 3),
        shrink,
        c(80, 1),
        c(192, 3, valid=True),
        shrink,
    )(Walk(299, 299, 3))
    walk.branches(c(96, 1), then(c(48, 1), c(64, 5)), then(c(64, 1), c(96, 3), c(96, 3)), c(64, 1))

    def block(*branches: Callable[[Walk], Walk]) -> None:
        channels = walk.channels
        walk.branches(*branches).conv(channels, 1)

    for _ in range(10):
        block(c(32, 1), then(c(32, 1), c(32, 3)), then(c(32, 1), c(48, 3), c(64, 3)))
    walk.branches(c(384, 3, **down), then(c(256, 1), c(256, 3), c(384, 3, **down)), shrink)
    for _ in range(20):
        block(c(192, 1), then(c(128, 1), c(160, 1, 7), c(192, 7, 1)))
    walk.branches(
        then(c(256, 1), c(384, 3, **down)), then(c(256, 1), c(288, 3, **down)), then(c(256, 1), c(288, 3), c(320, 3, **down)), shrink
    )  # fmt: skip
    for _ in range(10):
        block(c(192, 1), then(c(192, 1), c(224, 1, 3), c(256, 3, 1)))
    return c(1536, 1)(walk).average().dense(1000)


RESNETS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}

CLOSED_FORMS: dict[str, Callable[[], Walk]] = {
    "logistic": logistic,
    "mlp": mlp,
    "mlp:4096": lambda: mlp(4096),
    "lenet5": lenet5,
    "lenet5_rbf": lenet5_rbf,
    "lenet_like": lenet_like,
    "mnist_cnn": mnist_cnn,
    "deep_mnist": deep_mnist,
    "cifar_tutorial": cifar_tutorial,
    "cats_vs_dogs": cats_vs_dogs,
    "darknet19": darknet19,
    "alexnet": alexnet,
    "vgg11": lambda: vgg(1, 1, 2, 2, 2),
    "vgg16": lambda: vgg(2, 2, 3, 3, 3),
    "vgg19": lambda: vgg(2, 2, 4, 4, 4),
    "googlenet": googlenet,
    "googlenet_aux": lambda: googlenet(auxiliary=True),
    **{f"resnet{depth}": lambda depth=depth: resnet(*RESNETS[depth]) for depth in RESNETS},
    "resnet18_cifar": lambda: resnet(*RESNETS[18], small=True),
    "resnet50_cifar": lambda: resnet(*RESNETS[50], small=True),
    "inception_v4": inception_v4,
    "inception_resnet_v2": inception_resnet_v2,
    "yolov2": yolov2,
}
