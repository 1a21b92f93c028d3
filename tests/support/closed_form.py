"""Every network, written from its paper's tables a second time, with the arithmetic of `Tally`.

Nothing here uses the library or JAX, so that `test_models.py` compares two independent readings of
each paper.
"""

from collections.abc import Callable

from tests.support import closed_form_modern as modern
from tests.support.closed_form_inception import inception_resnet_v2, inception_v4
from tests.support.tally import Tally


def logistic() -> Tally:
    return Tally(28, 28, 1).flatten().dense(10)


def mlp(width: int = 512) -> Tally:
    return Tally(28, 28, 1).flatten().dense(width).dense(width).dense(10)


def lenet5() -> Tally:
    tally = Tally(32, 32, 1).conv(6, 5, valid=True).pool()
    tally.conv(16, 5, valid=True).pool().conv(120, 5, valid=True)
    return tally.flatten().dense(84).dense(10)


def lenet5_rbf() -> Tally:
    tally = lenet5()
    tally.trainable -= 85 * 10
    tally.fixed += 84 * 10
    tally.macs -= 84 * 10  # squared distances are not multiply-adds
    return tally


def lenet_like() -> Tally:
    tally = Tally(32, 32, 1).conv(6, 3, valid=True).pool().conv(16, 3, valid=True).pool()
    return tally.flatten().dense(120).dense(84).dense(10)


def mnist_cnn() -> Tally:
    tally = Tally(28, 28, 1).conv(32, valid=True).pool().conv(64, valid=True).pool()
    return tally.flatten().dense(128).dense(10)


def deep_mnist() -> Tally:
    return Tally(28, 28, 1).conv(32, 5).pool().conv(64, 5).pool().flatten().dense(1024).dense(10)


def cifar_tutorial() -> Tally:
    tally = Tally(24, 24, 3).conv(64, 5).pool(3, 2, ceil=True).conv(64, 5).pool(3, 2, ceil=True)
    return tally.flatten().dense(384).dense(192).dense(10)


def speedrun_cnn() -> Tally:
    tally = Tally(32, 32, 3).conv(24, 2, valid=True)
    tally.trainable, tally.fixed = 0, 2 * 2 * 3 * 24  # whitening is not trained and has no bias
    for width in (64, 256, 256):
        tally.conv(width, norm=True).pool().conv(width, norm=True)
        tally.trainable -= 2 * width  # batch norms without scale
    tally = tally.global_average().dense(10)
    tally.trainable -= 10  # no bias
    return tally


def cats_vs_dogs() -> Tally:
    stages = (32,) * 2, (64,) * 2, (128,) * 3, (256,) * 3, (512,) * 3
    tally = convolution_stages(Tally(256, 256, 3), stages, pools=(2, 2, 2, 3, 3))
    return tally.flatten().dense(2048, norm=True).dense(2048, norm=True).dense(1)


def vgg(*counts: int) -> Tally:
    widths = (64, 128, 256, 512, 512)
    stages = tuple((width,) * count for width, count in zip(widths, counts, strict=True))
    tally = convolution_stages(Tally(224, 224, 3), stages, pools=(2,) * 5)
    return tally.flatten().dense(4096).dense(4096).dense(1000)


def convolution_stages(
    tally: Tally, stages: tuple[tuple[int, ...], ...], pools: tuple[int, ...]
) -> Tally:
    """Stages of 3×3 convolutions with these widths, a pool with this window after each stage."""
    for widths, window in zip(stages, pools, strict=True):
        for width in widths:
            tally.conv(width)
        tally.pool(window)
    return tally


def alexnet() -> Tally:
    tally = Tally(227, 227, 3).conv(96, 11, stride=4, valid=True).pool(3, 2)
    tally.conv(256, 5, groups=2).pool(3, 2)
    tally.conv(384).conv(384, groups=2).conv(256, groups=2).pool(3, 2)
    return tally.flatten().dense(4096).dense(4096).dense(1000)


def darknet19(side: int = 256) -> Tally:
    tally = darknet_stages(darknet_fine(Tally(side, side, 3)), (1024, 512, 1024, 512, 1024))
    return tally.conv(1000, 1).global_average()


def yolov2() -> Tally:
    def coarse(tally: Tally) -> Tally:
        darknet_stages(tally, (1024, 512, 1024, 512, 1024))
        return tally.conv(1024, norm=True).conv(1024, norm=True)

    def passthrough(tally: Tally) -> Tally:
        tally.conv(64, 1, norm=True)
        tally.rows //= 2
        tally.columns //= 2
        tally.channels *= 4
        return tally

    tally = darknet_fine(Tally(416, 416, 3)).branches(coarse, passthrough)
    return tally.conv(1024, norm=True).conv(5 * 25, 1)


def darknet_fine(tally: Tally) -> Tally:
    """Darknet-19 up to the feature map that YOLOv2 passes on."""
    tally.conv(32, norm=True)
    return darknet_stages(tally, (64,), (128, 64, 128), (256, 128, 256), (512, 256, 512, 256, 512))


def darknet_stages(tally: Tally, *stages: tuple[int, ...]) -> Tally:
    """Stages of alternating 3×3 and 1×1 convolutions, a pool before each stage."""
    for widths in stages:
        tally.pool()
        for index, width in enumerate(widths):
            tally.conv(width, 1 if index % 2 else 3, norm=True)
    return tally


def googlenet(auxiliary: bool = False) -> Tally:
    tally = Tally(224, 224, 3).conv(64, 7, stride=2).pool(3, 2, ceil=True)
    tally.conv(64, 1).conv(192).pool(3, 2, ceil=True)
    inception(tally, 64, 96, 128, 16, 32, 32)
    inception(tally, 128, 128, 192, 32, 96, 64)
    inception(tally.pool(3, 2, ceil=True), 192, 96, 208, 16, 48, 64)
    head_parameters = [auxiliary_head(tally).trainable]
    inception(tally, 160, 112, 224, 24, 64, 64)
    inception(tally, 128, 128, 256, 24, 64, 64)
    inception(tally, 112, 144, 288, 32, 64, 64)
    head_parameters.append(auxiliary_head(tally).trainable)
    inception(tally, 256, 160, 320, 32, 128, 128)
    inception(tally.pool(3, 2, ceil=True), 256, 160, 320, 32, 128, 128)
    inception(tally, 384, 192, 384, 48, 128, 128).global_average().dense(1000)
    if auxiliary:  # in inference the heads have no cost
        tally.trainable += sum(head_parameters)
    return tally


def inception(
    tally: Tally, direct: int, reduce3: int, out3: int, reduce5: int, out5: int, pooled: int
) -> Tally:
    return tally.branches(
        lambda branch: branch.conv(direct, 1),
        lambda branch: branch.conv(reduce3, 1).conv(out3, 3),
        lambda branch: branch.conv(reduce5, 1).conv(out5, 5),
        lambda branch: branch.conv(pooled, 1),
    )


def auxiliary_head(tally: Tally) -> Tally:
    """A tally of an auxiliary head alone, on the output of `tally`."""
    assert (tally.rows, tally.columns) == (14, 14)
    head = Tally(14, 14, tally.channels).pool(5, 3).conv(128, 1)
    return head.flatten().dense(1024).dense(1000)


def resnet(counts: tuple[int, ...], bottleneck: bool, *, small: bool = False) -> Tally:
    if small:
        tally = Tally(32, 32, 3).conv(64, norm=True)
    else:
        tally = Tally(224, 224, 3).conv(64, 7, stride=2, norm=True).pool(3, 2, padding=1)
    for stage, count in enumerate(counts):
        for number in range(count):
            residual(tally, 64 * 2**stage, 2 if stage and not number else 1, bottleneck)
    return tally.global_average().dense(10 if small else 1000)


def residual(tally: Tally, width: int, stride: int, bottleneck: bool) -> Tally:
    outputs = width * (4 if bottleneck else 1)
    shortcut = Tally(tally.rows, tally.columns, tally.channels)
    if stride != 1 or shortcut.channels != outputs:
        shortcut.conv(outputs, 1, stride=stride, norm=True)
    if bottleneck:
        tally.conv(width, 1, norm=True).conv(width, 3, stride=stride, norm=True)
        tally.conv(outputs, 1, norm=True)
    else:
        tally.conv(width, 3, stride=stride, norm=True).conv(width, 3, norm=True)
    tally.add_costs(shortcut)
    return tally


# By depth: the number of blocks in each stage, and whether they are bottlenecks.
RESNET_BLOCKS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}

CLOSED_FORMS: dict[str, Callable[[], Tally]] = {
    "logistic": logistic,
    "mlp": mlp,
    "mlp:4096": lambda: mlp(4096),
    "lenet5": lenet5,
    "lenet5_rbf": lenet5_rbf,
    "lenet_like": lenet_like,
    "mnist_cnn": mnist_cnn,
    "deep_mnist": deep_mnist,
    "cifar_tutorial": cifar_tutorial,
    "speedrun_cnn": speedrun_cnn,
    "cats_vs_dogs": cats_vs_dogs,
    "darknet19": darknet19,
    "alexnet": alexnet,
    "vgg11": lambda: vgg(1, 1, 2, 2, 2),
    "vgg16": lambda: vgg(2, 2, 3, 3, 3),
    "vgg19": lambda: vgg(2, 2, 4, 4, 4),
    "googlenet": googlenet,
    "googlenet_aux": lambda: googlenet(auxiliary=True),
    **{
        f"resnet{depth}": lambda depth=depth: resnet(*RESNET_BLOCKS[depth])
        for depth in RESNET_BLOCKS
    },
    "resnet18_cifar": lambda: resnet(*RESNET_BLOCKS[18], small=True),
    "resnet50_cifar": lambda: resnet(*RESNET_BLOCKS[50], small=True),
    "inception_v4": inception_v4,
    "inception_resnet_v2": inception_resnet_v2,
    "yolov2": yolov2,
    "resnext50_32x4d": modern.resnext50,
    "wide_resnet28_10": modern.wide_resnet28_10,
    "squeezenet1_1": modern.squeezenet1_1,
    "densenet121": modern.densenet121,
    "mobilenet_v2": modern.mobilenet_v2,
    "shufflenet_v2": modern.shufflenet_v2,
    "mobilenet_v3_large": modern.mobilenet_v3_large,
    "efficientnet_b0": modern.efficientnet_b0,
    "regnet_y_400mf": modern.regnet_y_400mf,
    "efficientnet_v2_s": modern.efficientnet_v2_s,
    "convnext_tiny": modern.convnext_tiny,
}
