"""Recipes: how each network was trained by those who published it, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """How to train a network. The fields are the options of `experiments.run` under the same names.

    Attributes:
      source: where it was published, and what of it is left out here.
      optimizer: a key of `jaxcnn.training.OPTIMIZERS`.
      learning_rate: at the start.
      schedule: how it goes on, see `jaxcnn.training.optimizer.schedule`.
      weight_decay: factor of half the squared norm of the weights, a term of the loss.
      decayed: the layers whose weights it holds for, all kernels if empty.
      moving_average: decay of the averaged weights that evaluation uses; 0 for none.
      stages: factors of the learning rate; each stage starts from the best weights of those before.
      patience: epochs without improvement after which a stage ends, an entry a stage; empty: never.
      augment: by commas, see `jaxcnn.data.augment`; None leaves it to the data set.
      normalise: ``standard``, ``unit`` or ``image``.
      resize: side to which images are brought before they are cropped to the network's; 0: the network's own.
      dataset: the data it was published for; `epochs` and `batch_size` hold for that alone.
      epochs: at most, in each stage; 0 leaves them to the data set.
      batch_size: 0 leaves it to the data set.
    """

    source: str
    optimizer: str = "adam"
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    weight_decay: float = 0.0
    weight_decay_layers: tuple[str, ...] = ()
    moving_average: float = 0.0
    stages: tuple[float, ...] = (1.0,)
    patience: tuple[int, ...] = ()
    augment: str | None = None
    normalise: str = "standard"
    resize: int = 0
    dataset: str = ""
    epochs: int = 0
    batch_size: int = 0


OURS = Recipe("ours: the source gives none that could be followed")

# C9. Keras's mnist_mlp example, on which the lesson builds: RMSprop at its defaults.
MLP = Recipe(
    "Frigaard, ITMAL lesson 09, after Keras's mnist_mlp example",
    optimizer="rmsprop", learning_rate=1e-3, schedule="constant", normalise="unit", dataset="mnist", epochs=20, batch_size=128,
)  # fmt: skip

# C1. The paper's stochastic diagonal Levenberg-Marquardt, one image a step, is nobody's any more.
LENET5 = Recipe(
    "ours: the paper's stochastic diagonal Levenberg-Marquardt (LeCun et al. 1998, §III.B) is replaced by Adam"
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
    learning_rate=1e-4, schedule="constant", normalise="unit", dataset="mnist", epochs=18, batch_size=50,
)  # fmt: skip

CIFAR_TUTORIAL = Recipe(
    "TensorFlow's CIFAR-10 tutorial, cifar10.py; of its 1,000,000 steps the course reports the first 46,000",
    optimizer="sgd", learning_rate=0.1, schedule="step:350:0.1", weight_decay=0.004, weight_decay_layers=("dense1", "dense2"),
    moving_average=0.9999, augment="crop,flip,brightness,contrast", normalise="image", resize=32,
    dataset="cifar10", epochs=118, batch_size=128,
)  # fmt: skip

CATS_VS_DOGS = Recipe(
    "S. Agrawal, Cats_versus_Dogs",
    learning_rate=1e-4, schedule="constant", stages=(1.0, 0.1, 0.01), patience=(10, 3, 3),
    augment="affine,flip", normalise="unit", dataset="cats_vs_dogs", epochs=30, batch_size=128,
)  # fmt: skip

# The rates of AlexNet and VGG were divided by ten whenever the validation error stopped falling; patience stands for
# the eye of whoever watched it. Both cropped out of 256 pixels.
ALEXNET = Recipe(
    "Krizhevsky et al. 2012, §4.1 and §5; about 90 epochs in all",
    optimizer="momentum", learning_rate=0.01, schedule="constant", weight_decay=5e-4, stages=(1.0, 0.1, 0.01, 0.001),
    patience=(3, 3, 3, 3), augment="crop,flip,lighting", resize=256, dataset="imagenet", epochs=30, batch_size=128,
)  # fmt: skip

VGG = Recipe(
    "Simonyan & Zisserman 2015, §3.1, training scale 256; without its pre-trained first layers; 74 epochs in all",
    optimizer="momentum", learning_rate=0.01, schedule="constant", weight_decay=5e-4, stages=(1.0, 0.1, 0.01, 0.001),
    patience=(3, 3, 3, 3), augment="crop,flip,lighting", resize=256, dataset="imagenet", epochs=30, batch_size=256,
)  # fmt: skip

GOOGLENET = Recipe(
    "Szegedy et al. 2015, §6, its rate 4 % lower every eight epochs; the rate at the start and the batch are not published",
    optimizer="momentum", learning_rate=0.01, schedule="step:8:0.96", weight_decay=2e-4, moving_average=0.9999,
    augment="resized_crop,flip,brightness,contrast", resize=256, dataset="imagenet", epochs=250, batch_size=256,
)  # fmt: skip

RESNET = Recipe(
    "He et al. 2016, §3.4, its rate divided by ten at fixed epochs, as all have done since; one training scale",
    optimizer="momentum", learning_rate=0.1, schedule="step:30:0.1", weight_decay=1e-4, augment="crop,flip,lighting",
    resize=256, dataset="imagenet", epochs=90, batch_size=256,
)  # fmt: skip

RESNET_CIFAR = Recipe(
    "He et al. 2016, §4.2, 64,000 steps",
    optimizer="momentum", learning_rate=0.1, schedule="milestones:0.5,0.75:0.1", weight_decay=1e-4, augment="shift,flip",
    dataset="cifar10", epochs=164, batch_size=128,
)  # fmt: skip

INCEPTION = Recipe(
    "Szegedy et al. 2017, §4: 20 replicas of 32 images; the number of epochs is not published",
    optimizer="rmsprop_1", learning_rate=0.045, schedule="step:2:0.94", moving_average=0.9999,
    augment="resized_crop,flip", resize=320, dataset="imagenet", epochs=160, batch_size=32,
)  # fmt: skip

DARKNET19 = Recipe(
    "Redmon & Farhadi 2017, §3, Training for classification, at 256×256",
    optimizer="momentum", learning_rate=0.1, schedule="poly:4", weight_decay=5e-4, augment="resized_crop,flip,colour",
    normalise="unit", resize=288, dataset="imagenet", epochs=160, batch_size=128,
)  # fmt: skip

YOLOV2 = Recipe(
    "Redmon & Farhadi 2017, §3, Training for detection",
    optimizer="momentum", learning_rate=1e-3, schedule="milestones:0.375,0.5625:0.1", weight_decay=5e-4, normalise="unit",
    dataset="voc", epochs=160, batch_size=64,
)  # fmt: skip
