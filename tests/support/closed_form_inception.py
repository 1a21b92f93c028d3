"""Inception-v4 and Inception-ResNet-v2 (Szegedy et al. 2017), by arithmetic alone."""

from collections.abc import Callable

from tests.support.tally import Tally

Layer = Callable[[Tally], Tally]

HALVED = {"stride": 2, "valid": True}


def conv(outputs: int, height: int, width: int | None = None, **options) -> Layer:
    """A convolution with batch norm; the options are those of `Tally.conv`."""
    return lambda tally: tally.conv(outputs, height, width, norm=True, **options)


def pool(tally: Tally) -> Tally:
    """A max pool 3×3 with stride 2."""
    return tally.pool(3, 2)


def sequence(*layers: Layer) -> Layer:
    def run(tally: Tally) -> Tally:
        for layer in layers:
            tally = layer(tally)
        return tally

    return run


def fork(tally: Tally) -> Tally:
    """Two convolutions over the same images, the end of some branches of Inception-C."""
    return tally.branches(conv(256, 1, 3), conv(256, 3, 1))


def inception_v4() -> Tally:
    """Figures 3 to 9. Average pools with stride 1 change neither shape nor costs: left out."""
    stem = sequence(conv(32, 3, **HALVED), conv(32, 3, valid=True), conv(64, 3))
    tally = stem(Tally(299, 299, 3))
    tally.branches(pool, conv(96, 3, **HALVED))
    tally.branches(
        sequence(conv(64, 1), conv(96, 3, valid=True)),
        sequence(conv(64, 1), conv(64, 1, 7), conv(64, 7, 1), conv(96, 3, valid=True)),
    )
    tally.branches(conv(192, 3, **HALVED), pool)
    for _ in range(4):
        inception_a(tally)
    tally.branches(
        conv(384, 3, **HALVED),
        sequence(conv(192, 1), conv(224, 3), conv(256, 3, **HALVED)),
        pool,
    )
    for _ in range(7):
        inception_b(tally)
    tally.branches(
        sequence(conv(192, 1), conv(192, 3, **HALVED)),
        sequence(conv(256, 1), conv(256, 1, 7), conv(320, 7, 1), conv(320, 3, **HALVED)),
        pool,
    )
    for _ in range(3):
        inception_c(tally)
    return tally.global_average().dense(1000)


def inception_a(tally: Tally) -> Tally:
    return tally.branches(
        conv(96, 1),
        sequence(conv(64, 1), conv(96, 3)),
        sequence(conv(64, 1), conv(96, 3), conv(96, 3)),
        conv(96, 1),
    )


def inception_b(tally: Tally) -> Tally:
    return tally.branches(
        conv(384, 1),
        sequence(conv(192, 1), conv(224, 1, 7), conv(256, 7, 1)),
        sequence(conv(192, 1), conv(192, 7, 1), conv(224, 1, 7), conv(224, 7, 1), conv(256, 1, 7)),
        conv(128, 1),
    )


def inception_c(tally: Tally) -> Tally:
    return tally.branches(
        conv(256, 1),
        sequence(conv(384, 1), fork),
        sequence(conv(384, 1), conv(448, 3, 1), conv(512, 1, 3), fork),
        conv(256, 1),
    )


def inception_resnet_v2() -> Tally:
    """Figures 10 to 19 and the authors' published code, where those differ."""
    tally = resnet_stem(Tally(299, 299, 3))
    for _ in range(10):
        residual(
            tally,
            conv(32, 1),
            sequence(conv(32, 1), conv(32, 3)),
            sequence(conv(32, 1), conv(48, 3), conv(64, 3)),
        )
    tally.branches(
        conv(384, 3, **HALVED),
        sequence(conv(256, 1), conv(256, 3), conv(384, 3, **HALVED)),
        pool,
    )
    for _ in range(20):
        residual(tally, conv(192, 1), sequence(conv(128, 1), conv(160, 1, 7), conv(192, 7, 1)))
    tally.branches(
        sequence(conv(256, 1), conv(384, 3, **HALVED)),
        sequence(conv(256, 1), conv(288, 3, **HALVED)),
        sequence(conv(256, 1), conv(288, 3), conv(320, 3, **HALVED)),
        pool,
    )
    for _ in range(10):
        residual(tally, conv(192, 1), sequence(conv(192, 1), conv(224, 1, 3), conv(256, 3, 1)))
    return conv(1536, 1)(tally).global_average().dense(1000)


def resnet_stem(tally: Tally) -> Tally:
    tally = sequence(
        conv(32, 3, **HALVED),
        conv(32, 3, valid=True),
        conv(64, 3),
        pool,
        conv(80, 1),
        conv(192, 3, valid=True),
        pool,
    )(tally)
    return tally.branches(
        conv(96, 1),
        sequence(conv(48, 1), conv(64, 5)),
        sequence(conv(64, 1), conv(96, 3), conv(96, 3)),
        conv(64, 1),
    )


def residual(tally: Tally, *branches: Layer) -> Tally:
    """Branches, joined by a 1×1 convolution with a bias and added to the input."""
    channels = tally.channels
    return tally.branches(*branches).conv(channels, 1)
