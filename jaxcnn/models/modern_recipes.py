"""The recipes of the networks published from 2016 on, after ResNet."""

from jaxcnn.models.recipe import Recipe

SQUEEZENET = Recipe(
    "Iandola et al. 2016, the authors' repository, SqueezeNet v1.1, solver.prototxt: 170,000 steps",
    optimizer="momentum",
    learning_rate=0.04,
    schedule="poly:1",
    weight_decay=2e-4,
    augment="crop,flip",
    resize=256,
    dataset="imagenet",
    epochs=68,
    batch_size=512,
)

WIDE_RESNET = Recipe(
    "Zagoruyko & Komodakis 2016, §3: the learning rate falls after 60, 120 and 160 epochs",
    optimizer="nesterov",
    learning_rate=0.1,
    schedule="milestones:0.3,0.6,0.8:0.2",
    weight_decay=5e-4,
    augment="shift,flip",
    dataset="cifar10",
    epochs=200,
    batch_size=128,
)

RESNEXT = Recipe(
    "Xie et al. 2017, §4, and the authors' code: as ResNet, with crops of random size and aspect "
    "ratio",
    optimizer="momentum",
    learning_rate=0.1,
    schedule="step:30:0.1",
    weight_decay=1e-4,
    augment="resized_crop,flip,brightness,contrast,lighting",
    resize=256,
    dataset="imagenet",
    epochs=90,
    batch_size=256,
)

DENSENET = Recipe(
    "Huang et al. 2017, §4.2: the learning rate falls after 30 and 60 epochs",
    optimizer="nesterov",
    learning_rate=0.1,
    schedule="step:30:0.1",
    weight_decay=1e-4,
    augment="resized_crop,flip,brightness,contrast,lighting",
    resize=256,
    dataset="imagenet",
    epochs=90,
    batch_size=256,
)

MOBILENET_V2 = Recipe(
    "Sandler et al. 2018, §6.1: 16 asynchronous workers with 96 images each; the number of epochs "
    "is not published",
    optimizer="rmsprop_momentum",
    learning_rate=0.045,
    schedule="step:1:0.98",
    weight_decay=4e-5,
    augment="resized_crop,flip",
    resize=256,
    dataset="imagenet",
    epochs=300,
    batch_size=96,
)

SHUFFLENET_V2 = Recipe(
    "Ma et al. 2018, §4, with the settings of Zhang et al. 2018, *ShuffleNet*, §4: 300,000 steps",
    optimizer="momentum",
    learning_rate=0.5,
    schedule="poly:1",
    weight_decay=4e-5,
    augment="resized_crop,flip",
    resize=256,
    dataset="imagenet",
    epochs=240,
    batch_size=1024,
)

MOBILENET_V3 = Recipe(
    "Howard et al. 2019, §6.1.1; the number of epochs is not published",
    optimizer="rmsprop_momentum",
    learning_rate=0.1,
    schedule="step:3:0.99",
    weight_decay=1e-5,
    moving_average=0.9999,
    augment="resized_crop,flip",
    resize=256,
    dataset="imagenet",
    epochs=600,
    batch_size=4096,
)

EFFICIENTNET = Recipe(
    "Tan & Le 2019, §5.2, and the authors' code, without AutoAugment",
    optimizer="rmsprop_momentum",
    learning_rate=0.256,
    schedule="step:2.4:0.97",
    warmup=5,
    weight_decay=1e-5,
    moving_average=0.9999,
    label_smoothing=0.1,
    augment="resized_crop,flip",
    resize=256,
    dataset="imagenet",
    epochs=350,
    batch_size=4096,
)

REGNET = Recipe(
    "Radosavovic et al. 2020, appendix C",
    optimizer="momentum",
    learning_rate=0.8,
    schedule="cosine",
    warmup=5,
    weight_decay=5e-5,
    augment="resized_crop,flip,lighting",
    resize=256,
    dataset="imagenet",
    epochs=100,
    batch_size=1024,
)

EFFICIENTNET_V2 = Recipe(
    "Tan & Le 2021, §5.1, with the strengths of the last of four stages throughout; there, images "
    "grow from 128 to 300 pixels",
    optimizer="rmsprop_momentum",
    learning_rate=0.256,
    schedule="step:2.4:0.97",
    warmup=5,
    weight_decay=1e-5,
    moving_average=0.9999,
    label_smoothing=0.1,
    augment="resized_crop,flip,randaugment:2:15",
    resize=384,
    dataset="imagenet",
    epochs=350,
    batch_size=4096,
)

CONVNEXT = Recipe(
    "Liu et al. 2022, appendix A.1, table 5",
    optimizer="adamw",
    learning_rate=4e-3,
    schedule="cosine",
    warmup=20,
    weight_decay=0.05,
    moving_average=0.9999,
    label_smoothing=0.1,
    mixup=0.8,
    cutmix=1.0,
    augment="resized_crop,flip,randaugment:2:9,random_erasing:0.25",
    resize=256,
    dataset="imagenet",
    epochs=300,
    batch_size=4096,
)
