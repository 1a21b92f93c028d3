"""A network trains by its published recipe; options override parts of it."""

import jax
import pytest

from experiments.config import RunConfig
from experiments.studies import detection, train
from jaxcnn import models, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices()[:1]))


def with_defaults(**options) -> RunConfig:
    """The configuration of the one case of the study `train`."""
    (case,) = train.cases(RunConfig(**options), CPU)
    return case.config


def test_cats_versus_dogs_follows_its_notebook():
    config = with_defaults(model="cats_vs_dogs", dataset="synthetic:64", batch_size=8)
    assert (config.optimizer, config.learning_rate) == ("adam", 1e-4)
    assert (config.stages, config.patience) == ((1.0, 0.1, 0.01), (10, 3, 3))
    assert (config.augment, config.normalise) == ("affine,flip", "unit")


def test_the_cifar_network_follows_its_tutorial():
    config = with_defaults(model="cifar_tutorial", dataset="synthetic:256")
    assert (config.optimizer, config.learning_rate, config.schedule) == ("sgd", 0.1, "step:350:0.1")
    assert (config.weight_decay, config.moving_average) == (0.004, 0.9999)
    assert (config.image_size, config.resize) == (24, 32)


def test_an_option_overrides_only_its_part_of_the_recipe():
    config = with_defaults(
        model="cifar_tutorial",
        dataset="synthetic:256",
        optimizer="adam",
        weight_decay=0.0,
        image_size=32,
    )
    assert (config.optimizer, config.weight_decay) == ("adam", 0.0)
    assert (config.learning_rate, config.moving_average) == (0.1, 0.9999)
    assert (config.image_size, config.resize) == (32, 43)  # the published ratio is 32 / 24


def test_epochs_and_batch_size_apply_only_to_the_data_set_of_the_recipe(tfds_dir):
    same_data = with_defaults(model="deep_mnist", dataset="mnist", data_dir=tfds_dir)
    assert (same_data.epochs, same_data.batch_size) == (18, 50)  # 20,000 steps of 50 images
    other_data = with_defaults(model="deep_mnist", dataset="digits")
    assert (other_data.epochs, other_data.batch_size) == (30, 32)


@pytest.mark.parametrize("name", models.MODELS)
def test_every_recipe_is_valid(name):
    recipe = models.spec(name).recipe
    training.optimizer(
        recipe.optimizer, recipe.learning_rate, recipe.schedule, steps=10, steps_per_epoch=5
    )
    make_preprocess(() if recipe.augment in (None, "none") else tuple(recipe.augment.split(",")))
    assert len(recipe.patience or ()) in (0, 1, len(recipe.stages))
    assert recipe.resize == 0 or recipe.resize >= models.spec(name).input_shape[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "yolov2"},
            "'yolov2' detects objects and does not classify images: train it with "
            "--study=detection",
        ),
        (
            {"model": "cifar_tutorial", "resize": 20},
            "--resize=20 is smaller than the image size of 24",
        ),
        ({"freeze": True}, "--freeze would keep random initial weights: name pretrained ones with"),
        ({"schedule": "sometimes"}, "sometimes"),
    ],
)
def test_impossible_training_options_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        with_defaults(**({"dataset": "synthetic:64"} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "lenet5"},
            "model 'lenet5' does not detect objects: --study=detection needs --model=yolov2",
        ),
        (
            {"model": "yolov2", "image_size": 100},
            "--image-size=100: the detector needs a multiple of 32",
        ),
    ],
)
def test_impossible_detection_options_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        detection.cases(RunConfig(**options), CPU)
