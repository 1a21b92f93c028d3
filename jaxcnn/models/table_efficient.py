"""The table of models: networks with few parameters or few FLOPs, and ConvNeXt."""

from functools import partial

from jaxcnn.models import modern_recipes
from jaxcnn.models.convnext import ConvNeXt
from jaxcnn.models.densenet import DenseNet
from jaxcnn.models.efficientnet import B0, V2_S, EfficientNet
from jaxcnn.models.mobilenet import MobileNetV2, MobileNetV3
from jaxcnn.models.model_spec import IMAGENET, ModelSpec
from jaxcnn.models.regnet import RegNetY
from jaxcnn.models.shufflenet import ShuffleNetV2
from jaxcnn.models.squeezenet import SqueezeNet

EFFICIENT: dict[str, ModelSpec] = {
    "squeezenet1_1": ModelSpec(
        make=SqueezeNet,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=1_235_496,
        flops=698_303_872,
        source="Iandola et al. 2016, version 1.1",
        recipe=modern_recipes.SQUEEZENET,
    ),
    "densenet121": ModelSpec(
        make=DenseNet,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=7_978_856,
        non_trainable=83_648,
        flops=5_668_323_328,
        source="Huang et al. 2017",
        recipe=modern_recipes.DENSENET,
    ),
    "mobilenet_v2": ModelSpec(
        make=MobileNetV2,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=3_504_872,
        non_trainable=34_112,
        flops=601_548_544,
        source="Sandler et al. 2018",
        recipe=modern_recipes.MOBILENET_V2,
    ),
    "shufflenet_v2": ModelSpec(
        make=ShuffleNetV2,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=2_278_604,
        non_trainable=16_180,
        flops=289_815_984,
        source="Ma et al. 2018, 1.0×",
        recipe=modern_recipes.SHUFFLENET_V2,
    ),
    "mobilenet_v3_large": ModelSpec(
        make=MobileNetV3,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=5_483_032,
        non_trainable=24_400,
        flops=433_179_520,
        source="Howard et al. 2019",
        recipe=modern_recipes.MOBILENET_V3,
    ),
    "efficientnet_b0": ModelSpec(
        make=partial(EfficientNet, variant=B0),
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=5_288_548,
        non_trainable=42_016,
        flops=771_629_504,
        source="Tan & Le 2019",
        recipe=modern_recipes.EFFICIENTNET,
    ),
    "regnet_y_400mf": ModelSpec(
        make=RegNetY,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=4_344_144,
        non_trainable=27_152,
        flops=803_685_696,
        source="Radosavovic et al. 2020",
        recipe=modern_recipes.REGNET,
    ),
    "efficientnet_v2_s": ModelSpec(
        make=partial(EfficientNet, variant=V2_S),
        input_shape=(384, 384, 3),
        num_classes=1000,
        parameters=21_458_488,
        non_trainable=153_872,
        flops=16_731_234_304,
        source="Tan & Le 2021",
        recipe=modern_recipes.EFFICIENTNET_V2,
    ),
    "convnext_tiny": ModelSpec(
        make=ConvNeXt,
        input_shape=IMAGENET,
        num_classes=1000,
        parameters=28_589_128,
        flops=8_911_062_528,
        source="Liu et al. 2022",
        recipe=modern_recipes.CONVNEXT,
    ),
}
