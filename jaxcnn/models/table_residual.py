"""The table of models: residual networks, and Inception."""

from functools import partial

from jaxcnn.models import modern_recipes, recipes
from jaxcnn.models.inception import InceptionResNetV2, InceptionV4
from jaxcnn.models.model_spec import ModelSpec
from jaxcnn.models.resnet import ResNet
from jaxcnn.models.wide_resnet import WideResNet

IMAGENET = (224, 224, 3)

RESIDUAL: dict[str, ModelSpec] = {
    "resnet18": ModelSpec(
        make=partial(ResNet, depth=18),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=11_689_512,
        non_trainable=9_600,
        flops=3_628_146_688,
        source="He et al. 2016",
        recipe=recipes.RESNET,
    ),
    "resnet34": ModelSpec(
        make=partial(ResNet, depth=34),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=21_797_672,
        non_trainable=17_024,
        flops=7_327_522_816,
        source="He et al. 2016",
        recipe=recipes.RESNET,
    ),
    "resnet50": ModelSpec(
        make=partial(ResNet, depth=50),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=25_557_032,
        non_trainable=53_120,
        flops=8_178_368_512,
        source="He et al. 2016",
        recipe=recipes.RESNET,
    ),
    "resnet101": ModelSpec(
        make=partial(ResNet, depth=101),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=44_549_160,
        non_trainable=105_344,
        flops=15_602_810_880,
        source="He et al. 2016",
        recipe=recipes.RESNET,
    ),
    "resnet152": ModelSpec(
        make=partial(ResNet, depth=152),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=60_192_808,
        non_trainable=151_424,
        flops=23_027_253_248,
        source="He et al. 2016",
        recipe=recipes.RESNET,
    ),
    "resnet18_cifar": ModelSpec(
        make=partial(ResNet, depth=18, small_images=True),
        input_shape=(32, 32, 3),
        num_classes=10,
        parameters=11_173_962,
        non_trainable=9_600,
        flops=1_110_845_440,
        source="He et al. 2016, ResNet-18 for 32×32 images",
        recipe=recipes.RESNET_CIFAR,
    ),
    "resnet50_cifar": ModelSpec(
        make=partial(ResNet, depth=50, small_images=True),
        input_shape=(32, 32, 3),
        num_classes=10,
        parameters=23_520_842,
        non_trainable=53_120,
        flops=2_595_659_776,
        source="He et al. 2016, ResNet-50 for 32×32 images",
        recipe=recipes.RESNET_CIFAR,
    ),
    "resnext50_32x4d": ModelSpec(
        make=partial(ResNet, depth=50, grouped=True),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=25_028_904,
        non_trainable=68_224,
        flops=8_460_959_744,
        source="Xie et al. 2017",
        recipe=modern_recipes.RESNEXT,
    ),
    "wide_resnet28_10": ModelSpec(
        make=WideResNet,
        input_shape=(32, 32, 3),
        num_classes=10,
        parameters=36_479_194,
        non_trainable=17_952,
        flops=10_486_657_536,
        source="Zagoruyko & Komodakis 2016, without dropout",
        recipe=modern_recipes.WIDE_RESNET,
    ),
    "inception_v4": ModelSpec(
        make=InceptionV4,
        input_shape=(299, 299, 3),
        num_classes=1000,
        parameters=42_679_816,
        non_trainable=63_168,
        flops=24_507_949_248,
        source="Szegedy et al. 2017, §3.1",
        recipe=recipes.INCEPTION,
    ),
    "inception_resnet_v2": ModelSpec(
        make=InceptionResNetV2,
        input_shape=(299, 299, 3),
        num_classes=1000,
        parameters=55_843_464,
        non_trainable=60_544,
        flops=26_311_588_032,
        source="Szegedy et al. 2017, §3.2",
        recipe=recipes.INCEPTION,
    ),
}
