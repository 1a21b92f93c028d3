"""The table of models: networks up to GoogLeNet, and those of Darknet."""

from functools import partial

from jaxcnn.models import recipes
from jaxcnn.models.alexnet import AlexNet
from jaxcnn.models.cats_vs_dogs import CatsVsDogs
from jaxcnn.models.cifar import CifarTutorial
from jaxcnn.models.darknet import Darknet19, YOLOv2
from jaxcnn.models.googlenet import GoogLeNet
from jaxcnn.models.lenet import LeNet5, LeNet5RBF, LeNetLike
from jaxcnn.models.linear import MLP, LogisticRegression
from jaxcnn.models.mnist import DeepMnist, MnistCNN
from jaxcnn.models.model_spec import IMAGENET, ModelSpec
from jaxcnn.models.speedrun import SpeedrunCNN
from jaxcnn.models.vgg import VGG

MNIST = (28, 28, 1)

CLASSIC: dict[str, ModelSpec] = {
    "logistic": ModelSpec(
        make=LogisticRegression,
        input_shape=MNIST,
        num_classes=10,
        parameters=7_850,
        flops=15_680,
        source="logistic regression",
        recipe=recipes.OURS,
    ),
    "mlp": ModelSpec(
        make=MLP,
        width=512,
        input_shape=MNIST,
        num_classes=10,
        parameters=669_706,
        flops=1_337_344,
        source="Frigaard, ITMAL lesson 09: dropout MLP of any width (mlp:4096), here 512",
        recipe=recipes.MLP,
    ),
    "lenet5": ModelSpec(
        make=LeNet5,
        input_shape=(32, 32, 1),
        num_classes=10,
        parameters=61_706,
        flops=833_040,
        source="LeCun et al. 1998, §II.B, all C3 connections, dense output",
        recipe=recipes.LENET5,
    ),
    "lenet5_rbf": ModelSpec(
        make=LeNet5RBF,
        input_shape=(32, 32, 1),
        num_classes=10,
        parameters=60_856,
        non_trainable=840,
        flops=831_360,
        source="LeCun et al. 1998, §II.B, all C3 connections, RBF output",
        recipe=recipes.LENET5,
    ),
    "lenet_like": ModelSpec(
        make=LeNetLike,
        input_shape=(32, 32, 1),
        num_classes=10,
        parameters=81_194,
        flops=549_312,
        source="Frigaard, ITMAL lesson 09: LeNet with 3×3 kernels and ReLU",
        recipe=recipes.OURS,
    ),
    "mnist_cnn": ModelSpec(
        make=MnistCNN,
        input_shape=MNIST,
        num_classes=10,
        parameters=225_034,
        flops=5_262_080,
        source="Scaler Topics, GPUs and CNN: small sequential CNN",
        recipe=recipes.MNIST_CNN,
    ),
    "deep_mnist": ModelSpec(
        make=DeepMnist,
        input_shape=MNIST,
        num_classes=10,
        parameters=3_274_634,
        flops=27_767_808,
        source="TensorFlow, Deep MNIST for Experts",
        recipe=recipes.DEEP_MNIST,
    ),
    "cifar_tutorial": ModelSpec(
        make=CifarTutorial,
        input_shape=(24, 24, 3),
        num_classes=10,
        parameters=1_068_298,
        flops=36_941_568,
        source="TensorFlow's CIFAR-10 tutorial",
        recipe=recipes.CIFAR_TUTORIAL,
    ),
    "speedrun_cnn": ModelSpec(
        make=SpeedrunCNN,
        input_shape=(32, 32, 3),
        num_classes=10,
        parameters=1_971_328,
        non_trainable=2_592,
        flops=236_294_720,
        source="Jordan 2024, arXiv 2404.00498, §3",
        recipe=recipes.SPEEDRUN,
    ),
    "cats_vs_dogs": ModelSpec(
        make=CatsVsDogs,
        input_shape=(256, 256, 3),
        num_classes=2,
        parameters=21_455_521,
        non_trainable=8_192,
        flops=10_379_857_920,
        source="S. Agrawal, Cats_versus_Dogs",
        recipe=recipes.CATS_VS_DOGS,
    ),
    "darknet19": ModelSpec(
        make=Darknet19,
        input_shape=(256, 256, 3),
        num_classes=1000,
        parameters=20_842_376,
        non_trainable=14_400,
        flops=7_290_748_928,
        source="Redmon & Farhadi 2017, table 6",
        recipe=recipes.DARKNET19,
    ),
    "alexnet": ModelSpec(
        make=AlexNet,
        input_shape=(227, 227, 3),
        num_classes=1000,
        parameters=60_965_224,
        flops=1_448_813_632,
        source="Krizhevsky et al. 2012, two groups",
        recipe=recipes.ALEXNET,
    ),
    "vgg11": ModelSpec(
        make=partial(VGG, depth=11),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=132_863_336,
        flops=15_218_180_096,
        source="Simonyan & Zisserman 2015, configuration A",
        recipe=recipes.VGG,
    ),
    "vgg16": ModelSpec(
        make=partial(VGG, depth=16),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=138_357_544,
        flops=30_940_528_640,
        source="Simonyan & Zisserman 2015, configuration D",
        recipe=recipes.VGG,
    ),
    "vgg19": ModelSpec(
        make=partial(VGG, depth=19),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=143_667_240,
        flops=39_264_124_928,
        source="Simonyan & Zisserman 2015, configuration E",
        recipe=recipes.VGG,
    ),
    "googlenet": ModelSpec(
        make=GoogLeNet,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=6_998_552,
        flops=3_165_343_744,
        source="Szegedy et al. 2015",
        recipe=recipes.GOOGLENET,
    ),
    "googlenet_aux": ModelSpec(
        make=partial(GoogLeNet, auxiliary=True),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=13_378_280,
        flops=3_165_343_744,
        source="Szegedy et al. 2015, with its auxiliary heads",
        recipe=recipes.GOOGLENET,
    ),
    "yolov2": ModelSpec(
        make=YOLOv2,
        detects=True,
        input_shape=(416, 416, 3),
        num_classes=20,
        parameters=50_655_389,
        non_trainable=20_672,
        flops=29_360_334_848,
        source="Redmon & Farhadi 2017, §2",
        recipe=recipes.YOLOV2,
    ),
}
