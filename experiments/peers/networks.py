"""Networks of `jaxcnn.models` layer by layer, for other libraries.

They are written by hand, not derived from the modules, so that a layer that ours omits by mistake
shows as a different loss.
"""

from collections.abc import Callable

from experiments.peers.layers import (
    Activation,
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
from jaxcnn.errors import require_known
from jaxcnn.models.cats_vs_dogs import CatsVsDogs
from jaxcnn.models.darknet import COARSE, FINE

Layers = tuple[Layer, ...]

RELU, TANH, LEAKY = Activation("relu"), Activation("tanh"), Activation("leaky_relu")
LRN = ResponseNorm(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75)
MAX_POOL_3 = Pool("max", 3, 2, same=True)


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


def _residual_block(number: int, strides: int) -> Layers:
    """He et al. 2016, figure 5 left."""
    name = f"blocks.layers.{number}"
    body = (*_conv_norm(f"{name}.conv1", strides), RELU, *_conv_norm(f"{name}.conv2"))
    return Residual(body, _conv_norm(f"{name}.shortcut", strides) if strides > 1 else ()), RELU


def _residual_blocks(counts: tuple[int, ...]) -> Layers:
    """Residual blocks, by their number in each stage; later stages start with a stride of 2."""
    strided = {sum(counts[:stage]) for stage in range(1, len(counts))}
    return tuple(
        layer
        for number in range(sum(counts))
        for layer in _residual_block(number, 2 if number in strided else 1)
    )


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
        *_residual_blocks((2, 2, 2, 2)),
        *(GlobalAverage(), Dense("out")),
    ),
    "darknet19": (
        *_plan(FINE, "features.fine", _conv_norm_leaky),
        *_plan(COARSE, "features.coarse", _conv_norm_leaky),
        *(Conv("out"), GlobalAverage()),
    ),
}


def network_layers(model: str) -> Layers:
    """The layers of a network.

    Args:
      model: its name, such as ``lenet_like`` or ``mlp:1024``.

    Raises:
      InputError: the network is not in `NETWORKS`.

    >>> network_layers("logistic")
    (Flatten(), Dense(name='out'))
    """
    base = model.partition(":")[0]
    require_known("network for study 'peers'", base, NETWORKS)
    return NETWORKS[base]
