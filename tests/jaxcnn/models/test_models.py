"""Every network compared with its published parameters, FLOPs and shapes; `build` and `Dropout`."""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.measure.flops import model_flops
from experiments.measure.layers import layer_rows
from jaxcnn import models
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout
from tests.support.closed_form import CLOSED_FORMS

# Trainable parameters, as the studied documents, torchvision and timm give them.
PUBLISHED_PARAMETERS = {
    "lenet5": 61_706,
    "lenet_like": 81_194,
    "mlp:4096": 20_037_642,
    "deep_mnist": 3_274_634,
    "cifar_tutorial": 1_068_298,
    "cats_vs_dogs": 21_463_713 - 8_192,
    "darknet19": 20_842_376,
    "alexnet": 60_965_224,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "googlenet": 6_998_552,
    "googlenet_aux": 13_378_280,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception_v4": 42_679_816,
    "inception_resnet_v2": 55_843_464,
    "resnext50_32x4d": 25_028_904,
    "squeezenet1_1": 1_235_496,
    "densenet121": 7_978_856,
    "mobilenet_v2": 3_504_872,
    "shufflenet_v2": 2_278_604,
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_b0": 5_288_548,
    "regnet_y_400mf": 4_344_144,
    "efficientnet_v2_s": 21_458_488,
    "convnext_tiny": 28_589_128,
}
# FLOPs per image in 1e9, as the papers and torchvision give them; two for each multiply-add.
# Torchvision gives multiply-adds with three decimals.
PUBLISHED_GFLOPS = {
    "darknet19": 7.29,
    "vgg11": 2 * 7.609,
    "vgg16": 2 * 15.47,
    "vgg19": 2 * 19.632,
    "resnet18": 2 * 1.814,
    "resnet34": 2 * 3.664,
    "resnet50": 2 * 4.089,
    "resnet101": 2 * 7.801,
    "resnet152": 2 * 11.514,
    "resnext50_32x4d": 2 * 4.23,
    "squeezenet1_1": 2 * 0.349,
    "densenet121": 2 * 2.834,
    "mobilenet_v2": 2 * 0.301,
    "shufflenet_v2": 2 * 0.145,
    "mobilenet_v3_large": 2 * 0.217,
    "efficientnet_b0": 2 * 0.386,
    "regnet_y_400mf": 2 * 0.402,
    "efficientnet_v2_s": 2 * 8.366,
    "convnext_tiny": 2 * 4.456,
}
# Output shapes of some layers, as the papers' tables give them.
PUBLISHED_SHAPES = {
    "lenet5": [(28, 28, 6), (14, 14, 6), (10, 10, 16), (5, 5, 16), (1, 1, 120)],
    "cats_vs_dogs": [(128, 128, 32), (64, 64, 64), (32, 32, 128), (10, 10, 256), (3, 3, 512)],
    "cifar_tutorial": [(24, 24, 64), (12, 12, 64), (6, 6, 64)],
    "alexnet": [
        (55, 55, 96),
        (27, 27, 96),
        (27, 27, 256),
        (13, 13, 256),
        (13, 13, 384),
        (6, 6, 256),
    ],
    "googlenet": [(112, 112, 64), (56, 56, 192), (28, 28, 192), (7, 7, 832), (1024,)],
    "resnet50": [(112, 112, 64), (56, 56, 256), (28, 28, 512), (14, 14, 1024), (7, 7, 2048)],
    "inception_v4": [
        (149, 149, 32),
        (147, 147, 64),
        (73, 73, 64),
        (71, 71, 96),
        (35, 35, 192),
        (17, 17, 256),
        (8, 8, 512),
    ],
    "inception_resnet_v2": [
        (149, 149, 32),
        (35, 35, 320),
        (17, 17, 1088),
        (8, 8, 2080),
        (8, 8, 1536),
    ],
    "yolov2": [(26, 26, 512), (13, 13, 1024), (26, 26, 64), (13, 13, 125)],
    "resnext50_32x4d": [(56, 56, 128), (56, 56, 256), (28, 28, 256), (7, 7, 1024), (7, 7, 2048)],
    "wide_resnet28_10": [(32, 32, 16), (32, 32, 160), (16, 16, 320), (8, 8, 640)],
    "squeezenet1_1": [(111, 111, 64), (55, 55, 64), (27, 27, 128), (13, 13, 256), (13, 13, 1000)],
    "mobilenet_v2": [(112, 112, 16), (56, 56, 24), (28, 28, 32), (14, 14, 96), (7, 7, 1280)],
    "mobilenet_v3_large": [(112, 112, 16), (28, 28, 40), (14, 14, 112), (7, 7, 960), (1280,)],
    "shufflenet_v2": [(112, 112, 24), (56, 56, 24), (28, 28, 58), (14, 14, 116), (7, 7, 1024)],
    "efficientnet_b0": [(112, 112, 16), (28, 28, 40), (14, 14, 112), (7, 7, 320), (7, 7, 1280)],
    "regnet_y_400mf": [(112, 112, 32), (56, 56, 48), (28, 28, 104), (14, 14, 208), (7, 7, 440)],
    "convnext_tiny": [(56, 56, 96), (28, 28, 192), (14, 14, 384), (7, 7, 768), (7, 7, 3072)],
}


@functools.cache
def abstract_model(name: str) -> nnx.Module:
    """The network at its published size, without values."""
    return nnx.eval_shape(lambda: models.build(name))


@functools.cache
def published_layer_rows(name: str):
    return layer_rows(abstract_model(name), models.spec(name).input_shape)


# Tracing these networks takes many seconds.
SLOW = (
    "resnet101",
    "resnet152",
    "inception_v4",
    "inception_resnet_v2",
    "densenet121",
    "efficientnet_v2_s",
)


def with_slow_marks(names: Iterable[str]) -> list:
    """The names as parameters, those of `SLOW` with the marker."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


@pytest.mark.parametrize("name", with_slow_marks(CLOSED_FORMS))
def test_parameters_flops_and_output_shape_are_those_of_the_closed_form(name):
    tally, spec, model = CLOSED_FORMS[name](), models.spec(name), abstract_model(name)
    assert models.count_parameters(model) == tally.trainable
    assert models.count_non_trainable(model) == tally.fixed
    image = jax.ShapeDtypeStruct((1, *spec.input_shape), jnp.float32)
    graphdef, state = nnx.split(model)

    def evaluate(state, images):
        model = nnx.merge(graphdef, state, copy=True)
        model.eval()
        return model(images)

    flops = model_flops(evaluate, state, image)
    assert flops == pytest.approx(2 * tally.macs, rel=1e-3)
    shape = jax.eval_shape(evaluate, state, image).shape
    if spec.detects:
        assert shape == (1, tally.rows, tally.columns, 5, tally.channels // 5)
    else:
        assert shape == (1, tally.channels)
    if ":" not in name:
        assert (spec.parameters, spec.non_trainable, spec.flops) == (
            tally.trainable,
            tally.fixed,
            flops,
        )


def test_parameters_and_flops_are_the_published_ones():
    closed_forms = {name: CLOSED_FORMS[name]().trainable for name in PUBLISHED_PARAMETERS}
    assert closed_forms == PUBLISHED_PARAMETERS
    for name, gflops in PUBLISHED_GFLOPS.items():
        flops = models.spec(name).flops / 1e9
        assert flops == pytest.approx(gflops, rel=1e-3, abs=2 * 0.0005), name


def test_wide_resnet_has_the_published_36_5_million_parameters():
    assert round(CLOSED_FORMS["wide_resnet28_10"]().trainable / 1e6, 1) == 36.5


def test_flops_of_each_layer_of_darknet19_are_the_published_ones():
    """BFLOPs per layer as Darknet prints them at 256×256, with three decimals.

    Within a stage a 1×1 convolution takes a ninth of a 3×3 convolution.
    """
    rows = [row for row in published_layer_rows("darknet19") if row.kind.startswith("conv")]
    assert [round(row.flops / 1e9, 3) for row in rows] == [
        0.113,
        *[0.604] * 2,
        0.067,
        0.604,
        0.604,
        0.067,
        0.604,
        *[0.604, 0.067] * 2,
        0.604,
        *[0.604, 0.067] * 2,
        0.604,
        0.131,
    ]
    assert sum(row.flops for row in rows) == models.spec("darknet19").flops


@pytest.mark.parametrize("name", with_slow_marks(models.MODELS))
def test_parameters_and_flops_of_the_layers_add_up_to_those_of_the_network(name):
    rows, spec = published_layer_rows(name), models.spec(name)
    assert sum(row.trainable for row in rows) == spec.parameters
    assert sum(row.non_trainable for row in rows) == spec.non_trainable
    if name != "googlenet_aux":  # its rows include the heads, which run in training only
        assert sum(row.flops for row in rows) == spec.flops


@pytest.mark.parametrize(("name", "shapes"), PUBLISHED_SHAPES.items())
def test_layers_have_the_published_output_shapes(name, shapes):
    output_shapes = {row.output_shape for row in published_layer_rows(name)}
    assert set(shapes) <= output_shapes


@pytest.mark.parametrize("name", ["lenet5", "lenet_like", "mnist_cnn"])
@pytest.mark.parametrize("side", [1, 4, 8])
def test_images_that_are_too_small_are_refused(name, side):
    with pytest.raises(InputError, match=f"{name}.*{side}×{side}"):
        models.build(name, input_shape=(side, side, 1))


@pytest.mark.parametrize(("name", "least"), [("lenet_like", 10), ("cats_vs_dogs", 72)])
def test_the_smallest_images_are_named(name, least):
    with pytest.raises(InputError, match=f"it needs at least {least}×{least}, and its published"):
        models.build(name, input_shape=(5, 5, 3))
    nnx.eval_shape(lambda: models.build(name, input_shape=(least, least, 3)))
    with pytest.raises(InputError, match="cannot take images"):
        models.build(name, input_shape=(least - 1, least - 1, 3))


@pytest.mark.parametrize("name", ["mlp:0", "mlp:", "mlp:x", "lenet5:3"])
def test_invalid_widths_are_refused(name):
    with pytest.raises(InputError, match="a width from 1 to 999999"):
        models.build(name)


def test_an_unknown_model_suggests_the_nearest():
    with pytest.raises(InputError, match="unknown model 'lenet6': did you mean 'lenet5'"):
        models.build("lenet6")


def test_the_seed_determines_the_weights():
    kernels = [models.build("logistic", seed=seed).out.kernel[...] for seed in (0, 0, 1)]
    assert np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[0], kernels[2])


def test_dropout_keeps_the_mean_drops_the_rate_and_differs_between_examples_and_calls():
    dropout = Dropout(0.25, rngs=nnx.Rngs(0))
    first, second = dropout(jnp.ones((64, 1000))), dropout(jnp.ones((64, 1000)))
    assert set(np.unique(first).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(float((first == 0).mean()) - 0.25) < 0.01  # five standard deviations are 0.0086
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    dropout.eval()
    assert np.array_equal(dropout(jnp.ones((2, 3))), np.ones((2, 3)))


def test_an_invalid_dropout_rate_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1"):
        Dropout(1.0, rngs=nnx.Rngs(0))
