"""Networks of `jaxcnn.models` layer by layer, for other libraries.

They are written by hand, not derived from the modules, so that a layer that ours omits by mistake
shows as a different loss.
"""

from collections.abc import Callable

from experiments.peers.layers import (
    Activation,
    Concatenation,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAverage,
    Layer,
    Norm,
    Pool,
    Residual,
    ResponseNorm,
)
from jaxcnn.models.cats_vs_dogs import CatsVsDogs
from jaxcnn.models.darknet import COARSE, FINE
from jaxcnn.models.googlenet import MODULES
from jaxcnn.models.vgg import PLANS

Layers = tuple[Layer, ...]

RELU, TANH, LEAKY = Activation("relu"), Activation("tanh"), Activation("leaky_relu")
LRN = ResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
ALEXNET_LRN = ResponseNorm(radius=2, bias=2.0, alpha=1e-4, beta=0.75)
GOOGLENET_LRN = ResponseNorm(radius=2, bias=1.0, alpha=1e-4 / 5, beta=0.75)
MAX_POOL_3 = Pool("max", 3, 2, "same")
CEIL_POOL_3 = Pool("max", 3, 2, "ceil")


def _conv_relu(name: str) -> Layers:
    return Conv(f"{name}.conv"), RELU


def _conv_norm_leaky(name: str) -> Layers:
    return Conv(f"{name}.conv"), Norm(f"{name}.norm", 1e-5, 0.99), LEAKY


def _conv_norm(name: str, strides: int = 1) -> Layers:
    return Conv(f"{name}.conv", strides=strides), Norm(f"{name}.norm", 1e-5, 0.9)


def _plan(plan: str, prefix: str, unit: Callable[[str], Layers]) -> Layers:
    """The layers of a plan (`jaxcnn.models.plan`).

    Its tokens are max pools, such as ``P3`` for 3×3, and convolutions, each of which is a `unit`.
    """
    layers: list[Layer] = []
    for number, token in enumerate(plan.split()):
        side = int(token[1:] or 2) if token[0] == "P" else 0
        layers += [Pool("max", side, side)] if side else unit(f"{prefix}.layers.{number}")
    return tuple(layers)


def _basic_block(name: str, strides: int) -> Layers:
    """He et al. 2016, figure 5 left."""
    return (*_conv_norm(f"{name}.conv1", strides), RELU, *_conv_norm(f"{name}.conv2"))


def _bottleneck(name: str, strides: int) -> Layers:
    """He et al. 2016, figure 5 right."""
    return (
        *(*_conv_norm(f"{name}.conv1"), RELU),
        *(*_conv_norm(f"{name}.conv2", strides), RELU),
        *_conv_norm(f"{name}.conv3"),
    )


def _residual_blocks(block: Callable[[str, int], Layers], counts: tuple[int, ...]) -> Layers:
    """Residual blocks, by their number in each stage; later stages start with a stride of 2.

    The shortcut is a convolution where the shape changes; at the first bottleneck, which widens the
    images, as well.
    """
    strided = {sum(counts[:stage]) for stage in range(1, len(counts))}
    widened = strided | {0} if block is _bottleneck else strided
    result: list[Layer] = []
    for number in range(sum(counts)):
        name, strides = f"blocks.layers.{number}", 2 if number in strided else 1
        shortcut = _conv_norm(f"{name}.shortcut", strides) if number in widened else ()
        result += [Residual(block(name, strides), shortcut), RELU]
    return tuple(result)


def _resnet(block: Callable[[str, int], Layers], counts: tuple[int, ...]) -> Layers:
    """He et al. 2016, table 1."""
    return (
        *(*_conv_norm("conv1", 2), RELU, Pool("max", 3, 2, 1)),
        *_residual_blocks(block, counts),
        *(GlobalAverage(), Dense("out")),
    )


def _inception(name: str) -> Concatenation:
    """Szegedy et al. 2015, figure 2b."""
    branch = [f"inception.{name}.branches.{number}.layers" for number in range(4)]
    return Concatenation(
        (
            _conv_relu(f"{branch[0]}.0"),
            (*_conv_relu(f"{branch[1]}.0"), *_conv_relu(f"{branch[1]}.1")),
            (*_conv_relu(f"{branch[2]}.0"), *_conv_relu(f"{branch[2]}.1")),
            (Pool("max", 3, 1, "same"), *_conv_relu(f"{branch[3]}.1")),
        )
    )


def _inceptions(stage: str) -> Layers:
    """The modules of a stage, such as ``3``."""
    return tuple(_inception(name) for name in MODULES if name.startswith(stage))


NETWORKS: dict[str, Layers] = {
    "logistic": (Flatten(), Dense("out")),
    "mlp": (
        *(Flatten(), Dense("hidden1"), RELU, Dropout(0.2)),
        *(Dense("hidden2"), RELU, Dropout(0.2), Dense("out")),
    ),
    "lenet5": (
        *(Conv("c1", 0), TANH, Pool("average")),
        *(Conv("c3", 0), TANH, Pool("average")),
        *(Conv("c5", 0), TANH),
        *(Flatten(), Dense("f6"), TANH, Dense("out")),
    ),
    "lenet_like": (
        *(Conv("conv1", 0), RELU, Pool("average")),
        *(Conv("conv2", 0), RELU, Pool("average")),
        *(Flatten(), Dense("dense1"), RELU, Dense("dense2"), RELU, Dense("out")),
    ),
    "mnist_cnn": (
        *(Conv("conv1", 0), RELU, Pool("max")),
        *(Conv("conv2", 0), RELU, Pool("max")),
        *(Flatten(), Dense("dense"), RELU, Dense("out")),
    ),
    "deep_mnist": (
        *(Conv("conv1"), RELU, Pool("max")),
        *(Conv("conv2"), RELU, Pool("max")),
        *(Flatten(), Dense("dense"), RELU, Dropout(0.5), Dense("out")),
    ),
    "cifar_tutorial": (
        *(Conv("conv1"), RELU, MAX_POOL_3, LRN),
        *(Conv("conv2"), RELU, LRN, MAX_POOL_3),
        *(Flatten(), Dense("dense1"), RELU, Dense("dense2"), RELU, Dense("out")),
    ),
    "cats_vs_dogs": (
        *_plan(CatsVsDogs.PLAN, "convolve", _conv_relu),
        Flatten(),
        *(Dense("dense1"), RELU, Dropout(0.5), Norm("norm1", 1e-3, 0.99)),
        *(Dense("dense2"), RELU, Dropout(0.4), Norm("norm2", 1e-3, 0.99)),
        Dense("out"),
    ),
    "resnet18_cifar": (
        *(*_conv_norm("conv1"), RELU),
        *_residual_blocks(_basic_block, (2, 2, 2, 2)),
        *(GlobalAverage(), Dense("out")),
    ),
    "darknet19": (
        *_plan(FINE, "features.fine", _conv_norm_leaky),
        *_plan(COARSE, "features.coarse", _conv_norm_leaky),
        *(Conv("out"), GlobalAverage()),
    ),
    "alexnet": (
        *(Conv("conv1", 0, 4), RELU, ALEXNET_LRN, Pool("max", 3, 2)),
        *(Conv("conv2", groups=2), RELU, ALEXNET_LRN, Pool("max", 3, 2)),
        *(Conv("conv3"), RELU, Conv("conv4", groups=2), RELU),
        *(Conv("conv5", groups=2), RELU, Pool("max", 3, 2), Flatten()),
        *(Dropout(0.5), Dense("dense6"), RELU),
        *(Dropout(0.5), Dense("dense7"), RELU, Dense("out")),
    ),
    "vgg11": (
        *_plan(PLANS[11], "convolve", _conv_relu),
        *(Flatten(), Dense("dense1"), RELU, Dropout(0.5)),
        *(Dense("dense2"), RELU, Dropout(0.5), Dense("out")),
    ),
    "googlenet": (
        *(Conv("stem.layers.0.conv", strides=2), RELU, CEIL_POOL_3, GOOGLENET_LRN),
        *(*_conv_relu("stem.layers.3"), *_conv_relu("stem.layers.4"), GOOGLENET_LRN, CEIL_POOL_3),
        *(*_inceptions("3"), CEIL_POOL_3, *_inceptions("4"), CEIL_POOL_3, *_inceptions("5")),
        *(GlobalAverage(), Dropout(0.4), Dense("out")),
    ),
    "resnet18": _resnet(_basic_block, (2, 2, 2, 2)),
    "resnet34": _resnet(_basic_block, (3, 4, 6, 3)),
    "resnet50": _resnet(_bottleneck, (3, 4, 6, 3)),
}
