"""Networks of users: plain Flax, which `jaxcnn.training.create` accelerates as it is.

Each library builds them from the same layers, and ours is the network in plain Flax
(`flax_network`), as a user would write it; `jaxcnn.models` has some of them in layers of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

from experiments.peers.layer_builder import LayerBuilder, Layers
from experiments.peers.layers import (
    Activation,
    Concatenation,
    Dropout,
    Gate,
    GlobalAverage,
    Layer,
    Pool,
    Residual,
)

RELU, RELU6 = Activation("relu"), Activation("relu6")
SILU, SIGMOID, GELU = Activation("silu"), Activation("sigmoid"), Activation("gelu")


@dataclass(frozen=True)
class UserNetwork:
    """A row of `USER_NETWORKS`.

    Attributes:
      describe: ``describe(build, classes)`` returns the layers.
      input_shape: height, width and channels of the images; of volumes also their depth.
      num_classes: the number of classes.
    """

    describe: Callable[[LayerBuilder, int], Layers]
    input_shape: tuple[int, ...]
    num_classes: int


def depthwise_separable(build: LayerBuilder, classes: int) -> Layers:
    """The blocks of MobileNet (Howard et al. 2017, table 1), without its last five."""
    layers: list[Layer] = [*build.conv_norm(3, 32, 3, 2, activation=RELU)]
    channels = 32
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1))
    for outputs, strides in widths:
        layers += build.conv_norm(channels, channels, 3, strides, groups=channels, activation=RELU)
        layers += build.conv_norm(channels, outputs, 1, activation=RELU)
        channels = outputs
    return (*layers, GlobalAverage(), build.out(channels, classes))


def odd_widths(build: LayerBuilder, classes: int) -> Layers:
    """Widths that no register divides, and kernels 5×5, 1×7 and 7×1, with biases."""
    layers: list[Layer] = []
    channels = 3
    for outputs, kernel, strides in (
        (37, (3, 3), 1),
        (83, (5, 5), 2),
        (75, (1, 7), 1),
        (150, (7, 1), 1),
        (111, (3, 3), 2),
        (50, (3, 3), 1),
    ):
        layers += [build.conv(channels, outputs, kernel, strides, bias=True), RELU]
        channels = outputs
    return (*layers, GlobalAverage(), build.out(channels, classes))


def odd_residual(build: LayerBuilder, classes: int) -> Layers:
    """Odd widths with batch norm and shortcuts, for images with odd sides."""
    layers: list[Layer] = [*build.conv_norm(3, 19, 3, activation=RELU)]
    channels = 19
    for outputs, strides in ((19, 1), (45, 2), (45, 1), (97, 2), (97, 1)):
        body = (
            *build.conv_norm(channels, outputs, 3, strides, activation=RELU),
            *build.conv_norm(outputs, outputs, 3),
        )
        has_shortcut = (channels, strides) != (outputs, 1)
        shortcut = build.conv_norm(channels, outputs, 1, strides) if has_shortcut else ()
        layers += [Residual(body, shortcut), RELU]
        channels = outputs
    return (*layers, GlobalAverage(), build.out(channels, classes))


def cnn_3d(build: LayerBuilder, classes: int) -> Layers:
    """Convolutions 3×3×3 of volumes, with batch norm and max pools."""
    layers: list[Layer] = []
    channels = 1
    for outputs in (32, 64, 128):
        layers += [*build.conv_norm(channels, outputs, 3, activation=RELU), Pool("max")]
        channels = outputs
    return (*layers, GlobalAverage(), build.out(channels, classes))


def mobilenet_v2(build: LayerBuilder, classes: int) -> Layers:
    """Sandler et al. 2018, table 2."""
    stages = (
        InvertedStage(1, 16, 1, 1),
        InvertedStage(6, 24, 2, 2),
        InvertedStage(6, 32, 3, 2),
        InvertedStage(6, 64, 4, 2),
        InvertedStage(6, 96, 3, 1),
        InvertedStage(6, 160, 3, 2),
        InvertedStage(6, 320, 1, 1),
    )
    return _inverted_network(build, classes, stages, RELU6, excites=False)


def efficientnet_b0(build: LayerBuilder, classes: int) -> Layers:
    """Tan & Le 2019, table 1, without stochastic depth."""
    stages = (
        InvertedStage(1, 16, 1, 1),
        InvertedStage(6, 24, 2, 2),
        InvertedStage(6, 40, 2, 2, kernel=5),
        InvertedStage(6, 80, 3, 2),
        InvertedStage(6, 112, 3, 1, kernel=5),
        InvertedStage(6, 192, 4, 2, kernel=5),
        InvertedStage(6, 320, 1, 1),
    )
    return _inverted_network(build, classes, stages, SILU, excites=True)


@dataclass(frozen=True)
class InvertedStage:
    """Successive inverted residual blocks (Sandler et al. 2018, §3.3).

    Attributes:
      expansion: of the channels within a block.
      outputs: channels.
      count: of blocks.
      strides: of the first block.
      kernel: side of the depthwise convolutions.
    """

    expansion: int
    outputs: int
    count: int
    strides: int
    kernel: int = 3


def _inverted_network(
    build: LayerBuilder,
    classes: int,
    stages: tuple[InvertedStage, ...],
    activation: Activation,
    *,
    excites: bool,
) -> Layers:
    """A convolution, stages of inverted residual blocks, and a head with 1280 channels.

    Args:
      build, classes: of `UserNetwork.describe`.
      stages: of blocks.
      activation: of all convolutions but the last one of each block.
      excites: whether the blocks have squeeze and excitation (Hu et al. 2018) to a quarter of their
        input channels.
    """
    layers: list[Layer] = [*build.conv_norm(3, 32, 3, 2, activation=activation)]
    channels = 32
    for stage in stages:
        for number in range(stage.count):
            strides = 1 if number else stage.strides
            width = channels * stage.expansion
            body: list[Layer] = []
            if stage.expansion > 1:
                body += build.conv_norm(channels, width, 1, activation=activation)
            body += build.conv_norm(
                width, width, stage.kernel, strides, groups=width, activation=activation
            )
            body += [_squeeze_and_excite(build, width, channels // 4)] if excites else []
            body += build.conv_norm(width, stage.outputs, 1)
            is_residual = (channels, strides) == (stage.outputs, 1)
            layers += [Residual(tuple(body))] if is_residual else body
            channels = stage.outputs
    head = build.conv_norm(channels, 1280, 1, activation=activation)
    return (*layers, *head, GlobalAverage(), Dropout(0.2), build.out(1280, classes))


def _squeeze_and_excite(build: LayerBuilder, channels: int, reduced: int) -> Gate:
    return Gate(
        (
            *(GlobalAverage(keep_axes=True), build.conv(channels, reduced, 1, bias=True), SILU),
            *(build.conv(reduced, channels, 1, bias=True), SIGMOID),
        )
    )


def convnext_tiny(build: LayerBuilder, classes: int) -> Layers:
    """Liu et al. 2022, *A ConvNet for the 2020s*, §2, without stochastic depth."""
    layers: list[Layer] = []
    channels = 3
    for outputs, count in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if channels == 3:
            stem = build.conv(channels, outputs, 4, 4, padding=0, bias=True)
            layers += [stem, build.layer_norm(outputs)]
        else:
            norm = build.layer_norm(channels)
            layers += [norm, build.conv(channels, outputs, 2, 2, padding=0, bias=True)]
        channels = outputs
        for _ in range(count):
            body: Layers = (
                build.conv(channels, channels, 7, groups=channels, bias=True),
                *(build.layer_norm(channels), build.conv(channels, 4 * channels, 1, bias=True)),
                *(GELU, build.conv(4 * channels, channels, 1, bias=True), build.scale(channels)),
            )
            layers.append(Residual(body))
    return (*layers, GlobalAverage(), build.layer_norm(channels), build.out(channels, classes))


def densenet121(build: LayerBuilder, classes: int) -> Layers:
    """Huang et al. 2017, table 1, with a growth of 32 channels."""
    growth, channels = 32, 64
    layers: list[Layer] = [*build.conv_norm(3, 64, 7, 2, activation=RELU), Pool("max", 3, 2, 1)]
    for stage, count in enumerate((6, 12, 24, 16)):
        if stage:
            half = build.conv(channels, channels // 2, 1)
            layers += [build.norm(channels), RELU, half, Pool("average")]
            channels //= 2
        for _ in range(count):
            bottleneck = build.conv_norm(channels, 4 * growth, 1, activation=RELU)
            new = (build.norm(channels), RELU, *bottleneck, build.conv(4 * growth, growth, 3))
            layers.append(Concatenation(((), new)))
            channels += growth
    return (*layers, build.norm(channels), RELU, GlobalAverage(), build.out(channels, classes))


USER_NETWORKS: dict[str, UserNetwork] = {
    "depthwise_separable": UserNetwork(depthwise_separable, (64, 64, 3), 10),
    "odd_widths": UserNetwork(odd_widths, (48, 48, 3), 10),
    "odd_residual": UserNetwork(odd_residual, (45, 45, 3), 10),
    "cnn_3d": UserNetwork(cnn_3d, (32, 32, 32, 1), 10),
    "mobilenet_v2": UserNetwork(mobilenet_v2, (224, 224, 3), 1000),
    "efficientnet_b0": UserNetwork(efficientnet_b0, (224, 224, 3), 1000),
    "convnext_tiny": UserNetwork(convnext_tiny, (224, 224, 3), 1000),
    "densenet121": UserNetwork(densenet121, (224, 224, 3), 1000),
}
