"""The networks published from 2016 on, after ResNet, by arithmetic alone."""

from tests.support.tally import Tally


def squeezenet1_1() -> Tally:
    """Iandola et al. 2016 and the authors' repository; `P` is a pool, a number a fire module."""
    tally = Tally(224, 224, 3).conv(64, 3, stride=2, valid=True)
    for layer in ("P", 16, 16, "P", 32, 32, "P", 48, 48, 64, 64):
        if layer == "P":
            tally.pool(3, 2, ceil=True)
        else:
            tally.conv(layer, 1)
            tally.branches(
                lambda branch, width=4 * layer: branch.conv(width, 1),
                lambda branch, width=4 * layer: branch.conv(width, 3),
            )
    return tally.conv(1000, 1).global_average()


def densenet121() -> Tally:
    """Huang et al. 2017, table 1."""
    tally = Tally(224, 224, 3).conv(64, 7, stride=2, norm=True).pool(3, 2, padding=1)
    for block, count in enumerate((6, 12, 24, 16)):
        if block:
            tally.batch_norm().conv(tally.channels // 2, 1, bias=False).pool()
        for _ in range(count):
            new = Tally(tally.rows, tally.columns, tally.channels).batch_norm()
            new.conv(128, 1, norm=True).conv(32, 3, bias=False)
            tally.add_costs(new)
            tally.channels += 32
    return tally.batch_norm().global_average().dense(1000)


def mobilenet_v2() -> Tally:
    """Sandler et al. 2018, table 2: t, c, n, s."""
    tally = Tally(224, 224, 3).conv(32, 3, stride=2, norm=True)
    for t, c, n, s in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for number in range(n):
            inverted(tally, t * tally.channels, c, 3, 1 if number else s)
    return tally.conv(1280, 1, norm=True).global_average().dense(1000)


def inverted(
    tally: Tally, width: int, outputs: int, side: int, stride: int, reduced: int = 0
) -> Tally:
    """An inverted residual; `reduced` channels within squeeze and excitation, 0 for none."""
    if width != tally.channels:
        tally.conv(width, 1, norm=True)
    tally.conv(width, side, stride=stride, groups=width, norm=True)
    if reduced:
        tally.excite(reduced)
    return tally.conv(outputs, 1, norm=True)


def mobilenet_v3_large() -> Tally:
    """Howard et al. 2019, table 1: side, exp size, #out, channels within SE, s."""
    tally = Tally(224, 224, 3).conv(16, 3, stride=2, norm=True)
    for side, width, outputs, reduced, stride in (
        (3, 16, 16, 0, 1),
        (3, 64, 24, 0, 2),
        (3, 72, 24, 0, 1),
        (
            5,
            72,
            40,
            24,
            2,
        ),  # a quarter is 18; 16, the nearest multiple of 8, is less than 0.9 of it
        (5, 120, 40, 32, 1),
        (5, 120, 40, 32, 1),
        (3, 240, 80, 0, 2),
        (3, 200, 80, 0, 1),
        (3, 184, 80, 0, 1),
        (3, 184, 80, 0, 1),
        (3, 480, 112, 120, 1),
        (3, 672, 112, 168, 1),
        (5, 672, 160, 168, 2),
        (5, 960, 160, 240, 1),
        (5, 960, 160, 240, 1),
    ):
        inverted(tally, width, outputs, side, stride, reduced)
    return tally.conv(960, 1, norm=True).global_average().dense(1280).dense(1000)


def efficientnet_b0() -> Tally:
    """Tan & Le 2019, table 1: expansion, side, channels, layers, stride."""
    tally = Tally(224, 224, 3).conv(32, 3, stride=2, norm=True)
    for expansion, side, outputs, count, stride in (
        (1, 3, 16, 1, 1),
        (6, 3, 24, 2, 2),
        (6, 5, 40, 2, 2),
        (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1),
        (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    ):
        mbconv(tally, expansion, side, outputs, count, stride)
    return tally.conv(1280, 1, norm=True).global_average().dense(1000)


def mbconv(tally: Tally, expansion: int, side: int, outputs: int, count: int, stride: int) -> None:
    for number in range(count):
        inputs = tally.channels
        inverted(
            tally, expansion * inputs, outputs, side, 1 if number else stride, reduced=inputs // 4
        )


def efficientnet_v2_s() -> Tally:
    """Tan & Le 2021, table 4; the last convolution has 1280 channels."""
    tally = Tally(384, 384, 3).conv(24, 3, stride=2, norm=True)
    tally.conv(24, 3, norm=True).conv(24, 3, norm=True)
    for outputs in (48, 64):
        for number in range(4):
            tally.conv(4 * tally.channels, 3, stride=1 if number else 2, norm=True)
            tally.conv(outputs, 1, norm=True)
    mbconv(tally, 4, 3, 128, 6, 2)
    mbconv(tally, 6, 3, 160, 9, 1)
    mbconv(tally, 6, 3, 256, 15, 2)
    return tally.conv(1280, 1, norm=True).global_average().dense(1000)


def convnext_tiny() -> Tally:
    """Liu et al. 2022, table 9."""
    tally = Tally(224, 224, 3).conv(96, 4, stride=4, valid=True).scale_and_shift()
    for outputs, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if outputs != tally.channels:
            tally.scale_and_shift().conv(outputs, 2, stride=2, valid=True)
        for _ in range(count):
            tally.conv(outputs, 7, groups=outputs).scale_and_shift()
            tally.pointwise(4 * outputs).pointwise(outputs).layer_scale()
    return tally.global_average().scale_and_shift().dense(1000)


def regnet_y_400mf() -> Tally:
    """Radosavovic et al. 2020, figure 20: widths and depths; 8 channels a group."""
    tally = Tally(224, 224, 3).conv(32, 3, stride=2, norm=True)
    for width, count in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for number in range(count):
            inputs, stride = tally.channels, 1 if number else 2
            shortcut = Tally(tally.rows, tally.columns, inputs)
            if not number:
                shortcut.conv(width, 1, stride=stride, norm=True)
            tally.conv(width, 1, norm=True)
            tally.conv(width, 3, stride=stride, groups=width // 8, norm=True)
            tally.excite(inputs // 4).conv(width, 1, norm=True)
            tally.add_costs(shortcut)
    return tally.global_average().dense(1000)


def shufflenet_v2() -> Tally:
    """Ma et al. 2018, table 5, 1×."""
    tally = Tally(224, 224, 3).conv(24, 3, stride=2, norm=True).pool(3, 2, padding=1)
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        half, inputs = outputs // 2, tally.channels
        side = Tally(tally.rows, tally.columns, inputs)
        side.conv(inputs, 3, stride=2, groups=inputs, norm=True).conv(half, 1, norm=True)
        tally.conv(half, 1, norm=True).conv(half, 3, stride=2, groups=half, norm=True)
        tally.conv(half, 1, norm=True)
        tally.add_costs(side)
        for _ in range(count - 1):
            tally.conv(half, 1, norm=True).conv(half, 3, groups=half, norm=True)
            tally.conv(half, 1, norm=True)
        tally.channels = outputs
    return tally.conv(1024, 1, norm=True).global_average().dense(1000)


def resnext50() -> Tally:
    """Xie et al. 2017, table 1, right column."""
    tally = Tally(224, 224, 3).conv(64, 7, stride=2, norm=True).pool(3, 2, padding=1)
    for width, count in ((128, 3), (256, 4), (512, 6), (1024, 3)):
        for number in range(count):
            stride = 1 if number or width == 128 else 2
            shortcut = Tally(tally.rows, tally.columns, tally.channels)
            if not number:
                shortcut.conv(2 * width, 1, stride=stride, norm=True)
            tally.conv(width, 1, norm=True).conv(width, 3, stride=stride, groups=32, norm=True)
            tally.conv(2 * width, 1, norm=True)
            tally.add_costs(shortcut)
    return tally.global_average().dense(1000)


def wide_resnet28_10() -> Tally:
    """Zagoruyko & Komodakis 2016, table 1, with k = 10 and N = 4."""
    tally = Tally(32, 32, 3).conv(16, bias=False)
    for width in (160, 320, 640):
        for number in range(4):
            stride = 2 if width > 160 and not number else 1
            shortcut = Tally(tally.rows, tally.columns, tally.channels)
            if not number:
                shortcut.conv(width, 1, stride=stride, bias=False)
            tally.batch_norm().conv(width, stride=stride, bias=False)
            tally.batch_norm().conv(width, bias=False)
            tally.add_costs(shortcut)
    return tally.batch_norm().global_average().dense(10)
