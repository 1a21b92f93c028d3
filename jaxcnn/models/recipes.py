"""The recipes of all networks."""

from jaxcnn.models.recipe import Recipe

OURS = Recipe("ours: the source describes no training that could be reproduced")

# After Keras's mnist_mlp example, on which the lesson builds: RMSprop with its default options.
MLP = Recipe(
    "Frigaard, ITMAL lesson 09, after Keras's mnist_mlp example",
    optimizer="rmsprop",
    learning_rate=1e-3,
    schedule="constant",
    normalise="unit",
    dataset="mnist",
    epochs=20,
    batch_size=128,
)

# The paper's optimizer, with one image per step, is no longer in use.
LENET5 = Recipe(
    "ours: Adam replaces the paper's stochastic diagonal Levenberg-Marquardt "
    "(LeCun et al. 1998, §III.B)"
)

MNIST_CNN = Recipe(
    "Scaler Topics, GPUs and CNN",
    learning_rate=1e-3,
    schedule="constant",
    normalise="unit",
    dataset="mnist",
    epochs=5,
)

DEEP_MNIST = Recipe(
    "TensorFlow, Deep MNIST for Experts: 20,000 steps of 50 images",
    learning_rate=1e-4,
    schedule="constant",
    normalise="unit",
    dataset="mnist",
    epochs=18,
    batch_size=50,
)

CIFAR_TUTORIAL = Recipe(
    "TensorFlow's CIFAR-10 tutorial, cifar10.py: 1,000,000 steps, of which IBM DL0122EN reports "
    "the first 46,000",
    optimizer="sgd",
    learning_rate=0.1,
    schedule="step:350:0.1",
    weight_decay=0.004,
    weight_decay_layers=("dense1", "dense2"),
    moving_average=0.9999,
    augment="crop,flip,brightness,contrast",
    normalise="image",
    resize=32,
    dataset="cifar10",
    epochs=118,
    batch_size=128,
)

CATS_VS_DOGS = Recipe(
    "S. Agrawal, Cats_versus_Dogs",
    learning_rate=1e-4,
    schedule="constant",
    stages=(1.0, 0.1, 0.01),
    patience=(10, 3, 3),
    monitor="validation_loss",  # as the callbacks of Keras do by default
    augment="affine,flip",
    normalise="unit",
    dataset="cats_vs_dogs",
    epochs=30,
    batch_size=128,
)

# The learning rates of AlexNet and VGG were divided by ten by hand when the validation error
# stopped falling; here patience decides. Both networks took crops from images of 256 pixels.
ALEXNET = Recipe(
    "Krizhevsky et al. 2012, §4.1 and §5; about 90 epochs in all",
    optimizer="momentum",
    learning_rate=0.01,
    schedule="constant",
    weight_decay=5e-4,
    stages=(1.0, 0.1, 0.01, 0.001),
    patience=(3, 3, 3, 3),
    augment="crop,flip,lighting",
    resize=256,
    dataset="imagenet",
    epochs=30,
    batch_size=128,
)

VGG = Recipe(
    "Simonyan & Zisserman 2015, §3.1, training scale 256, without pre-trained first layers; "
    "74 epochs in all",
    optimizer="momentum",
    learning_rate=0.01,
    schedule="constant",
    weight_decay=5e-4,
    stages=(1.0, 0.1, 0.01, 0.001),
    patience=(3, 3, 3, 3),
    augment="crop,flip,lighting",
    resize=256,
    dataset="imagenet",
    epochs=30,
    batch_size=256,
)

GOOGLENET = Recipe(
    "Szegedy et al. 2015, §6: the learning rate falls by 4 % every eight epochs; its initial value "
    "and the batch size are not published",
    optimizer="momentum",
    learning_rate=0.01,
    schedule="step:8:0.96",
    weight_decay=2e-4,
    moving_average=0.9999,
    augment="resized_crop,flip,brightness,contrast",
    resize=256,
    dataset="imagenet",
    epochs=250,
    batch_size=256,
)

RESNET = Recipe(
    "He et al. 2016, §3.4; the learning rate is divided by ten at fixed epochs, as is usual since; "
    "one training scale",
    optimizer="momentum",
    learning_rate=0.1,
    schedule="step:30:0.1",
    weight_decay=1e-4,
    augment="crop,flip,lighting",
    resize=256,
    dataset="imagenet",
    epochs=90,
    batch_size=256,
)

RESNET_CIFAR = Recipe(
    "He et al. 2016, §4.2, 64,000 steps",
    optimizer="momentum",
    learning_rate=0.1,
    schedule="milestones:0.5,0.75:0.1",
    weight_decay=1e-4,
    augment="shift,flip",
    dataset="cifar10",
    epochs=164,
    batch_size=128,
)

INCEPTION = Recipe(
    "Szegedy et al. 2017, §4: 20 replicas with 32 images each; the number of epochs is not "
    "published",
    optimizer="rmsprop_1",
    learning_rate=0.045,
    schedule="step:2:0.94",
    moving_average=0.9999,
    augment="resized_crop,flip",
    resize=320,
    dataset="imagenet",
    epochs=160,
    batch_size=32,
)

DARKNET19 = Recipe(
    "Redmon & Farhadi 2017, §3, Training for classification, at 256×256",
    optimizer="momentum",
    learning_rate=0.1,
    schedule="poly:4",
    weight_decay=5e-4,
    augment="resized_crop,flip,colour",
    normalise="unit",
    resize=288,
    dataset="imagenet",
    epochs=160,
    batch_size=128,
)

YOLOV2 = Recipe(
    "Redmon & Farhadi 2017, §3, Training for detection",
    optimizer="momentum",
    learning_rate=1e-3,
    schedule="milestones:0.375,0.5625:0.1",
    weight_decay=5e-4,
    normalise="unit",
    dataset="voc",
    epochs=160,
    batch_size=64,
)

SPEEDRUN = Recipe(
    "Jordan 2024, 94% on CIFAR-10 in 3.29 Seconds on a Single GPU, with Muon as in the author's "
    "later program; the bias of the first layer is left out",
    optimizer="speedrun",
    learning_rate=0.24,
    schedule="poly:1",
    weight_decay=4e-3 / 0.24,
    label_smoothing=0.2,
    augment="alternating_flip,mirror_shift",
    dataset="cifar10",
    epochs=8,
    batch_size=2000,
)
