"""The networks, as Flax NNX modules, and the table of them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
from flax import nnx

from jaxcnn.errors import InputError, require_known
from jaxcnn.models import recipe
from jaxcnn.models.alexnet import AlexNet
from jaxcnn.models.cats_vs_dogs import CatsVsDogs
from jaxcnn.models.cifar import CifarTutorial
from jaxcnn.models.darknet import Darknet19, YOLOv2
from jaxcnn.models.googlenet import GoogLeNet
from jaxcnn.models.inception import InceptionResNetV2, InceptionV4
from jaxcnn.models.layers import ImagesTooSmallError
from jaxcnn.models.lenet import LeNet5, LeNet5RBF, LeNetLike
from jaxcnn.models.linear import MLP, LogisticRegression
from jaxcnn.models.mnist import DeepMnist, MnistCNN
from jaxcnn.models.recipe import Recipe
from jaxcnn.models.resnet import ResNet
from jaxcnn.models.vgg import VGG

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ModelSpec:
    """One row of `MODELS`.

    Attributes:
      make: ``make(input_shape, num_classes, rngs=…)`` builds the module.
      input_shape: the published height, width and channels.
      num_classes: the published number of classes.
      parameters: trainable parameters at the published shape.
      flops: of the forward pass for one image at the published shape: products and convolutions, two a multiply-add.
      source: where the network is described.
      recipe: how it was trained.
      non_trainable: running means and variances, and other numbers that are not learnt.
      width: the published width, where the network comes in any width.
      detects: it finds objects, it does not classify pictures.
    """

    make: Callable[..., nnx.Module]
    input_shape: Shape
    num_classes: int
    parameters: int
    flops: int
    source: str
    recipe: Recipe
    non_trainable: int = 0
    width: int | None = None
    detects: bool = False

    def __post_init__(self):
        if min(*self.input_shape, self.num_classes, self.parameters, self.flops) < 1:
            raise ValueError(f"sizes must be positive: {self}")


MNIST, IMAGENET = (28, 28, 1), (224, 224, 3)

MODELS: dict[str, ModelSpec] = {
    "logistic": ModelSpec(LogisticRegression, MNIST, 10, 7_850, 15_680, "A9: logistic regression", recipe.OURS),
    "mlp": ModelSpec(MLP, MNIST, 10, 669_706, 1_337_344, "C9: dropout MLP of any width (mlp:4096), here 512", recipe.MLP, width=512),
    "lenet5": ModelSpec(LeNet5, (32, 32, 1), 10, 61_706, 833_040, "C1: LeCun et al. 1998, §II.B, all C3 connections, dense output", recipe.LENET5),
    "lenet5_rbf": ModelSpec(LeNet5RBF, (32, 32, 1), 10, 60_856, 831_360, "C1: with the paper's RBF output", recipe.LENET5, non_trainable=840),
    "lenet_like": ModelSpec(LeNetLike, (32, 32, 1), 10, 81_194, 549_312, "C2: LeNet with 3×3 kernels and ReLU", recipe.OURS),
    "mnist_cnn": ModelSpec(MnistCNN, MNIST, 10, 225_034, 5_262_080, "D1: small sequential CNN", recipe.MNIST_CNN),
    "deep_mnist": ModelSpec(DeepMnist, MNIST, 10, 3_274_634, 27_767_808, "B3: Deep MNIST for Experts", recipe.DEEP_MNIST),
    "cifar_tutorial": ModelSpec(CifarTutorial, (24, 24, 3), 10, 1_068_298, 36_941_568, "B4: TensorFlow's CIFAR-10 tutorial", recipe.CIFAR_TUTORIAL),
    "cats_vs_dogs": ModelSpec(CatsVsDogs, (256, 256, 3), 2, 21_455_521, 10_379_857_920, "A1: Cats_versus_Dogs", recipe.CATS_VS_DOGS, non_trainable=8_192),
    "darknet19": ModelSpec(Darknet19, (256, 256, 3), 1000, 20_842_376, 7_290_748_928, "C3: Redmon & Farhadi 2017, table 6", recipe.DARKNET19, non_trainable=14_400),
    "alexnet": ModelSpec(AlexNet, (227, 227, 3), 1000, 60_965_224, 1_448_813_632, "C4: Krizhevsky et al. 2012, two groups", recipe.ALEXNET),
    "vgg11": ModelSpec(partial(VGG, depth=11), IMAGENET, 1000, 132_863_336, 15_218_180_096, "C4: Simonyan & Zisserman 2015, A", recipe.VGG),
    "vgg16": ModelSpec(partial(VGG, depth=16), IMAGENET, 1000, 138_357_544, 30_940_528_640, "C4: Simonyan & Zisserman 2015, D", recipe.VGG),
    "vgg19": ModelSpec(partial(VGG, depth=19), IMAGENET, 1000, 143_667_240, 39_264_124_928, "C4: Simonyan & Zisserman 2015, E", recipe.VGG),
    "googlenet": ModelSpec(GoogLeNet, IMAGENET, 1000, 6_998_552, 3_165_343_744, "C4: Szegedy et al. 2015", recipe.GOOGLENET),
    "googlenet_aux": ModelSpec(partial(GoogLeNet, auxiliary=True), IMAGENET, 1000, 13_378_280, 3_165_343_744, "C4: with its auxiliary heads", recipe.GOOGLENET),
    "resnet18": ModelSpec(partial(ResNet, depth=18), IMAGENET, 1000, 11_689_512, 3_628_146_688, "C4: He et al. 2016", recipe.RESNET, non_trainable=9_600),
    "resnet34": ModelSpec(partial(ResNet, depth=34), IMAGENET, 1000, 21_797_672, 7_327_522_816, "C4: He et al. 2016", recipe.RESNET, non_trainable=17_024),
    "resnet50": ModelSpec(partial(ResNet, depth=50), IMAGENET, 1000, 25_557_032, 8_178_368_512, "C4: He et al. 2016", recipe.RESNET, non_trainable=53_120),
    "resnet101": ModelSpec(partial(ResNet, depth=101), IMAGENET, 1000, 44_549_160, 15_602_810_880, "C4: He et al. 2016", recipe.RESNET, non_trainable=105_344),
    "resnet152": ModelSpec(partial(ResNet, depth=152), IMAGENET, 1000, 60_192_808, 23_027_253_248, "C4: He et al. 2016", recipe.RESNET, non_trainable=151_424),
    "resnet18_cifar": ModelSpec(partial(ResNet, depth=18, small_images=True), (32, 32, 3), 10, 11_173_962, 1_110_845_440, "C4: ResNet-18 for 32×32 images", recipe.RESNET_CIFAR, non_trainable=9_600),
    "resnet50_cifar": ModelSpec(partial(ResNet, depth=50, small_images=True), (32, 32, 3), 10, 23_520_842, 2_595_659_776, "C4: ResNet-50 for 32×32 images", recipe.RESNET_CIFAR, non_trainable=53_120),
    "inception_v4": ModelSpec(InceptionV4, (299, 299, 3), 1000, 42_679_816, 24_507_949_248, "C4: Szegedy et al. 2017, §3.1", recipe.INCEPTION, non_trainable=63_168),
    "inception_resnet_v2": ModelSpec(InceptionResNetV2, (299, 299, 3), 1000, 55_843_464, 26_311_588_032, "E3: Szegedy et al. 2017, §3.2", recipe.INCEPTION, non_trainable=60_544),
    "yolov2": ModelSpec(YOLOv2, (416, 416, 3), 20, 50_655_389, 29_360_334_848, "C5: Redmon & Farhadi 2017, §2", recipe.YOLOV2, non_trainable=20_672, detects=True),
}  # fmt: skip


def spec(name: str) -> ModelSpec:
    """The row of `MODELS` that `name` (``lenet5``, ``mlp:4096``) means.

    Raises:
      InputError: no such model, or a width for a model that has none.
    """
    return _resolve(name)[0]


def build(
    name: str, *, num_classes: int | None = None, input_shape: Shape | None = None, seed: int = 0
) -> nnx.Module:
    """Builds a network with freshly drawn weights.

    Args:
      name: a key of `MODELS`; a width may follow one that has a width, as in ``mlp:4096``.
      num_classes: size of the output; the published one if not given.
      input_shape: height, width, channels of the images; the published ones if not given.
      seed: of the weights and of dropout.

    Returns:
      A module from images ``f32[N, H, W, C]`` to logits ``f32[N, num_classes]``.

    Raises:
      InputError: the name is unknown, or the images are too small for the network.

    >>> count_parameters(build("lenet5"))
    61706
    """
    row, extra = _resolve(name)
    shape = input_shape or row.input_shape

    def make() -> nnx.Module:
        return row.make(shape, num_classes or row.num_classes, rngs=nnx.Rngs(seed), **extra)

    try:
        return make()
    except ImagesTooSmallError as error:
        raise InputError(
            f"model {name!r} cannot take images of {shape[0]}×{shape[1]}: nothing of them is left after its convolutions and pools; its published size is {row.input_shape[0]}×{row.input_shape[1]}"
        ) from error


def count_parameters(model: nnx.Module) -> int:
    """Trainable parameters of a module."""
    return _count(nnx.state(model, nnx.Param))


def count_non_trainable(model: nnx.Module) -> int:
    """Numbers of a module that are not learnt: running means and variances, fixed centres; not its random keys."""
    return _count(nnx.state(model, nnx.Not(nnx.Any(nnx.Param, nnx.RngState))))


def heads(model: nnx.Module) -> tuple[str, ...]:
    """The layers of a module that hang on the number of classes: ``out``, and GoogLeNet's auxiliary heads."""
    return tuple(name for name in ("out", "head1", "head2") if hasattr(model, name))


def _count(state: nnx.State) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state))


def _resolve(name: str) -> tuple[ModelSpec, dict[str, int]]:
    base, _, width = name.partition(":")
    require_known("model", base, MODELS)
    row = MODELS[base]
    if ":" not in name:
        return row, {} if row.width is None else {"width": row.width}
    if row.width is None or not re.fullmatch(r"[1-9]\d{0,5}", width):
        raise InputError(
            f"model {name!r}: a width from 1 to 999999 may follow only {[n for n, r in MODELS.items() if r.width]}, as in mlp:4096"
        )
    return row, {"width": int(width)}
