"""A network trains by its published recipe unless told otherwise."""

import jax
import pytest

from experiments.config import RunConfig
from experiments.studies import detection, train
from jaxcnn import models, training
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.errors import InputError


def filled(**options) -> RunConfig:
    (case,) = train.cases(RunConfig(**options), Backend("cpu", tuple(jax.devices()[:1])))
    return case.config


def test_cats_versus_dogs_by_its_notebook():
    config = filled(model="cats_vs_dogs", dataset="synthetic:64", batch_size=8)
    assert (config.optimizer, config.learning_rate, config.stages) == (
        "adam",
        1e-4,
        (1.0, 0.1, 0.01),
    )
    assert (config.patience, config.augment, config.normalise) == (
        (10, 3, 3),
        "affine,flip",
        "unit",
    )


def test_the_cifar_tutorial_by_its_tutorial(tmp_path):
    config = filled(model="cifar_tutorial", dataset="synthetic:256")
    assert (config.optimizer, config.learning_rate, config.schedule) == ("sgd", 0.1, "step:350:0.1")
    assert (config.weight_decay, config.moving_average) == (0.004, 0.9999)
    assert (config.image_size, config.resize) == (24, 32)


def test_an_option_overrides_its_part_alone():
    config = filled(
        model="cifar_tutorial",
        dataset="synthetic:256",
        optimizer="adam",
        weight_decay=0.0,
        image_size=32,
    )
    assert (config.optimizer, config.weight_decay, config.learning_rate, config.moving_average) == (
        "adam",
        0.0,
        0.1,
        0.9999,
    )
    assert (config.image_size, config.resize) == (32, 43)  # 32/24 of it, as 32 is of 24


def test_epochs_and_batch_size_are_the_recipes_for_its_own_data_alone(tfds_dir):
    own = filled(model="deep_mnist", dataset="mnist", data_dir=tfds_dir)
    assert (own.epochs, own.batch_size) == (18, 50)  # 20,000 steps of 50 images
    elsewhere = filled(model="deep_mnist", dataset="digits")
    assert (elsewhere.epochs, elsewhere.batch_size) == (30, 32)


@pytest.mark.parametrize("name", models.MODELS)
def test_every_recipe_can_be_followed(name):
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
            "'yolov2' finds objects and does not classify pictures; train it with --study=detection",
        ),
        ({"model": "cifar_tutorial", "resize": 20}, "--resize=20 is smaller than the images of 24"),
        (
            {"freeze": True},
            "--freeze keeps weights that were drawn at random: say with --init-from",
        ),
        ({"schedule": "sometimes"}, "sometimes"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        filled(**({"dataset": "synthetic:64"} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "lenet5"},
            "model 'lenet5' does not find objects; --study=detection needs --model=yolov2",
        ),
        (
            {"model": "yolov2", "image_size": 100},
            "--image-size=100: the detector needs a multiple of 32",
        ),
    ],
)
def test_what_the_detector_cannot_be_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        detection.cases(RunConfig(**options), Backend("cpu", tuple(jax.devices()[:1])))
