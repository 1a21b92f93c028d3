"""A network trains by its published recipe; options override parts of it."""

import dataclasses

import jax
import pytest

from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.studies import detection, train_cases
from experiments.workloads.recipe_step import build_optimizer, describe, describe_epochs
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices()[:1]))


def with_defaults(**options) -> RunConfig:
    """The configuration of the one case of the study `train`."""
    (case,) = train_cases.cases(RunConfig(**options), CPU)
    return case.config


def test_cats_versus_dogs_follows_its_notebook():
    config = with_defaults(model="cats_vs_dogs", dataset="synthetic:64", batch_size=8)
    assert (config.optimizer, config.learning_rate) == ("adam", 1e-4)
    assert (config.stages, config.patience) == ((1.0, 0.1, 0.01), (10, 3, 3))
    assert (config.augment, config.normalise) == ("affine,flip", "unit")
    assert config.monitor == config.case_settings()["monitor"] == "validation_loss"
    assert "monitors validation loss" in describe(config)


def test_monitoring_the_accuracy_leaves_the_names_of_cases_as_they_are():
    config = with_defaults(model="lenet5", dataset="synthetic:64", batch_size=8)
    assert config.monitor == "validation_accuracy" and "monitor" not in config.case_settings()
    assert "monitor" not in describe(config)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "cats_vs_dogs", "epochs": 2}, "at most 2 epochs in each of 3 stages, 6 in all"),
        ({"model": "cats_vs_dogs", "epochs": 2, "stages": (1.0,), "patience": ()}, "2 epochs"),
        ({"model": "lenet5", "epochs": 2, "stages": (1.0, 0.1)}, "2 epochs in each of 2 stages"),
    ],
)
def test_epochs_are_described_with_their_stages(options, words):
    config = with_defaults(dataset="synthetic:64", batch_size=8, **options)
    assert describe_epochs(config).startswith(words)


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
    build_optimizer(recipe, steps=1000, steps_per_epoch=5)
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
        ({"warmup": 5, "epochs": 5}, "warmup 5: the warm-up must be shorter than the 5 epochs"),
        ({"augment": "randaugment:0:9"}, "there must be 1 to 10 operations"),
        (
            {"batch_size": 10, "microbatches": 3},
            "--batch-size=10 cannot be divided among 1 device.s. with --microbatches=3: it must be "
            "a multiple of 3, such as 9",
        ),
        (
            {"batch_size": 9, "mixup": 0.2},
            "with --microbatches=1, each of whole pairs of images to mix: it must be a multiple of "
            "2, such as 8",
        ),
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
        ({"model": "yolov2", "schedule": "sometimes"}, "unknown schedule 'sometimes'"),
    ],
)
def test_impossible_detection_options_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        detection.cases(RunConfig(**options), CPU)


def test_every_device_needs_whole_pairs_in_every_microbatch(devices):
    config = RunConfig(dataset="synthetic:64", batch_size=16, cutmix=1.0, strategy="data")
    assert train_cases.cases(config, Backend("cpu", devices))
    with pytest.raises(InputError, match=r"among 8 device.s. .* a multiple of 32, such as 32"):
        train_cases.cases(config.replace(microbatches=2), Backend("cpu", devices))


LATER = ("warmup", "clip_norm", "label_smoothing", "mixup", "cutmix", "microbatches")


@pytest.mark.parametrize("name", LATER)
def test_a_later_option_names_a_case_only_where_it_changes_something(name):
    recipe = {field.name: field.default for field in dataclasses.fields(models.Recipe)}
    plain = with_defaults(dataset="synthetic:64", batch_size=8)
    neutral = with_defaults(dataset="synthetic:64", batch_size=8, **{name: recipe[name]})
    assert getattr(plain, name) == recipe[name]
    assert plain.case_settings() == neutral.case_settings()
    assert not set(LATER).intersection(plain.case_settings())
    value = 2 if name == "microbatches" else 0.5
    changed = with_defaults(dataset="synthetic:64", batch_size=8, **{name: value})
    assert changed.case_settings() == plain.case_settings() | {name: value}


def test_the_recipe_of_a_case_is_described():
    config = with_defaults(
        dataset="synthetic:64",
        batch_size=8,
        epochs=3,
        optimizer="adamw",
        weight_decay=0.05,
        warmup=1,
        clip_norm=1.0,
        label_smoothing=0.1,
        mixup=0.2,
        cutmix=1.0,
        microbatches=2,
        augment="randaugment:2:9,random_erasing",
    )
    assert describe(config) == (
        "adamw 0.002 cosine, warm-up 1 epochs, weight decay 0.05, clip norm 1, label smoothing "
        "0.1, mixup 0.2, CutMix 1, 2 microbatches, augment randaugment:2:9,random_erasing, "
        "pixels standard"
    )


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("--warmup=-1", "--warmup=-1.0: must be 0 or a positive number"),
        ("--clip-norm=inf", "--clip-norm=inf: must be 0 or a positive number"),
        ("--label-smoothing=1", "--label-smoothing=1.0: must be 0 or lie between 0 and 1"),
        ("--mixup=-0.2", "--mixup=-0.2: must be 0 or a positive number"),
        ("--cutmix=nan", "--cutmix=nan: must be 0 or a positive number"),
        ("--microbatches=0", "--microbatches=0: must be from 1 to"),
    ],
)
def test_values_that_are_not_allowed(option, rule):
    with pytest.raises(InputError, match=rule):
        parse([option])


def test_detection_leaves_out_what_is_for_one_label_an_image():
    options = {"model": "yolov2", "label_smoothing": 0.1, "mixup": 0.2, "warmup": 20}
    (case,) = detection.cases(RunConfig(**options), CPU)
    assert case.settings["warmup"] == 20
    assert not {"label_smoothing", "mixup", "cutmix"}.intersection(case.settings)
