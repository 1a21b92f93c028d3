"""FLOPs of a training step: the closed form, the jaxpr of the step, and values by hand."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from experiments.measure.flops import model_flops
from experiments.measure.layers import layer_rows, training_step_flops
from jaxcnn import detection, models, training
from jaxcnn.data.mixing import Mixing
from jaxcnn.models.layers import Branches, Conv, ConvReLU, GlobalAvgPool
from tests.support.abstract import abstract_training
from tests.support.small_networks import build_without_repeats

ROWS = 4
SLOW = {
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "googlenet",
    "googlenet_aux",
    "inception_resnet_v2",
    "inception_v4",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "regnet_y_400mf",
    "resnet101",
    "resnet152",
    "resnet34",
    "resnet50",
    "resnet50_cifar",
    "resnext50_32x4d",
    "shufflenet_v2",
    "yolov2",
}


def abstract(build, **settings):
    """A network, its train state and its step, all arrays abstract."""
    create = functools.partial(training.create, **settings)
    state, step = abstract_training(lambda: create(build(), optax.adam(1e-3)))
    return nnx.eval_shape(build), state, step


def step_flops(state, step, input_shape, *, rows: int = ROWS, boxes: int = 0) -> int:
    labels = (rows, boxes) if boxes else (rows,)
    batch = {
        "image": jax.ShapeDtypeStruct((rows, *input_shape), "float32"),
        "label": jax.ShapeDtypeStruct(labels, "int32"),
    }
    if boxes:
        batch["boxes"] = jax.ShapeDtypeStruct((rows, boxes, 4), "float32")
    return model_flops(step, state, batch)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in (*models.MODELS, "mlp:4096")
    ],
)
def test_the_closed_form_of_a_step_equals_the_count_of_its_jaxpr(name):
    spec = models.spec(name)
    settings = {"objective": detection.region_objective} if spec.detects else {}
    model, state, step = abstract(functools.partial(build_without_repeats, name), **settings)
    flops = step_flops(state, step, spec.input_shape, boxes=2 if spec.detects else 0)
    assert flops == training_step_flops(model, spec.input_shape, ROWS)


# Multiply-adds of one image, layer by layer: outputs × the terms of each sum.
MLP_4096 = [784 * 4096, 4096 * 4096, 4096 * 10]  # 20 029 440
CATS_VS_DOGS = [  # A1
    256**2 * 32 * 9 * 3, 256**2 * 32 * 9 * 32,
    128**2 * 64 * 9 * 32, 128**2 * 64 * 9 * 64,
    64**2 * 128 * 9 * 64, 64**2 * 128 * 9 * 128, 64**2 * 128 * 9 * 128,
    32**2 * 256 * 9 * 128, 32**2 * 256 * 9 * 256, 32**2 * 256 * 9 * 256,
    10**2 * 512 * 9 * 256, 10**2 * 512 * 9 * 512, 10**2 * 512 * 9 * 512,
    3 * 3 * 512 * 2048, 2048 * 2048, 2048 * 1,
]  # fmt: skip
RESNET50 = [
    112**2 * 64 * 49 * 3,
    # per stage the first block, its shortcut last, and the others: 1×1, 3×3, 1×1
    56**2 * (64 * 64 + 64 * 9 * 64 + 256 * 64 + 256 * 64),
    2 * 56**2 * (64 * 256 + 64 * 9 * 64 + 256 * 64),
    56**2 * 128 * 256 + 28**2 * (128 * 9 * 128 + 512 * 128 + 512 * 256),
    3 * 28**2 * (128 * 512 + 128 * 9 * 128 + 512 * 128),
    28**2 * 256 * 512 + 14**2 * (256 * 9 * 256 + 1024 * 256 + 1024 * 512),
    5 * 14**2 * (256 * 1024 + 256 * 9 * 256 + 1024 * 256),
    14**2 * 512 * 1024 + 7**2 * (512 * 9 * 512 + 2048 * 512 + 2048 * 1024),
    2 * 7**2 * (512 * 2048 + 512 * 9 * 512 + 2048 * 512),
    2048 * 1000,
]


@pytest.mark.parametrize(
    ("name", "layers", "total"),
    [
        ("mlp:4096", MLP_4096, 20_029_440),
        ("cats_vs_dogs", CATS_VS_DOGS, 5_189_928_960),
        ("resnet50", RESNET50, 4_089_184_256),
    ],
)
def test_a_step_is_three_forward_passes_minus_the_first_layers_input_gradient(name, layers, total):
    assert sum(layers) == total
    model, state, step = abstract(functools.partial(models.build, name))
    shape = models.spec(name).input_shape
    images = {
        "image": jax.ShapeDtypeStruct((ROWS, *shape), "float32"),
        "label": jax.ShapeDtypeStruct((ROWS,), "int32"),
    }
    assert model_flops(step.evaluation, state, images) == 2 * ROWS * total
    assert step_flops(state, step, shape) == 2 * ROWS * (3 * total - layers[0])
    assert training_step_flops(model, shape, ROWS) == 2 * ROWS * (3 * total - layers[0])


class TwoInputBranches(nnx.Module):
    """Two branches that read the images, one of them after a 1×1 convolution."""

    def __init__(self, rngs: nnx.Rngs):
        deep = nnx.Sequential(ConvReLU(3, 8, 1, rngs=rngs), ConvReLU(8, 4, rngs=rngs))
        self.branches = Branches(ConvReLU(3, 4, rngs=rngs), deep)
        self.pool = GlobalAvgPool()
        self.out = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, images):
        return self.out(self.pool(self.branches(images)))


def test_layers_that_read_the_images_have_no_input_gradient():
    model, state, step = abstract(lambda: TwoInputBranches(nnx.Rngs(0)))
    wide, narrow, second, dense = 64 * 4 * 27, 64 * 8 * 3, 64 * 4 * 72, 80
    expected = 2 * ROWS * (2 * wide + 2 * narrow + 3 * second + 3 * dense)
    assert training_step_flops(model, (8, 8, 3), ROWS) == expected
    assert step_flops(state, step, (8, 8, 3)) == expected
    gradients = {row.name: row.gradients for row in layer_rows(model, (8, 8, 3))}
    assert sorted(gradients.values()) == [1, 1, 1, 2, 2]  # the pool has an input and no parameters
    assert gradients["pool"] == 1


@pytest.mark.parametrize(
    ("trainable", "passes"),
    [
        ((), [2, 3, 3]),
        (("out",), [1, 1, 2]),  # nothing before it needs a gradient
        # the kernel of the output layer is frozen, but the gradient passes through it
        (("hidden2",), [1, 2, 2]),
        (("hidden1", "out"), [2, 2, 3]),
    ],
)
def test_frozen_layers_have_no_kernel_gradient(trainable, passes):
    layers = [784 * 512, 512 * 512, 512 * 10]
    model, state, step = abstract(functools.partial(models.build, "mlp"), trainable=trainable)
    expected = 2 * ROWS * sum(layer * times for layer, times in zip(layers, passes, strict=True))
    assert training_step_flops(model, (28, 28, 1), ROWS, trainable) == expected
    assert step_flops(state, step, (28, 28, 1)) == expected


def test_a_new_head_on_a_frozen_network_with_auxiliary_heads():
    """A frozen GoogLeNet runs as in evaluation, without its auxiliary heads."""
    heads = ("out", "head1", "head2")
    model = nnx.eval_shape(functools.partial(models.build, "googlenet_aux"))
    forward, dense = models.spec("googlenet_aux").flops, 2 * 1024 * 1000
    assert training_step_flops(model, (224, 224, 3), 2, heads) == 2 * (forward + dense)


def test_weight_decay_precision_and_moving_average_add_no_flops():
    plain = abstract(functools.partial(models.build, "lenet5"))
    settings = {"weight_decay": 1e-3, "precision": "bfloat16", "ema_decay": 0.9}
    extended = abstract(functools.partial(models.build, "lenet5"), **settings)
    assert step_flops(*plain[1:], (32, 32, 1)) == step_flops(*extended[1:], (32, 32, 1)) > 0


@pytest.mark.standard_promotion  # Optax mixes integers and floats
def test_a_recipe_of_today_adds_no_flops():
    """Muon's products of matrices are no work of the model; microbatches add up to the batch."""
    plain = abstract(functools.partial(models.build, "lenet5"))

    def create():
        sizes = {"steps": 9, "steps_per_epoch": 1}
        muon = training.optimizer("muon", 0.1, "cosine", **sizes, clip_norm=1.0, weight_decay=0.1)
        return training.create(
            models.build("lenet5"), muon, mix=Mixing(0.2, 1.0), label_smoothing=0.1, microbatches=2
        )

    assert (
        step_flops(*abstract_training(create), (32, 32, 1))
        == step_flops(*plain[1:], (32, 32, 1))
        > 0
    )


def test_groups_and_a_layer_called_twice():
    class Twice(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.first = Conv(3, 8, rngs=rngs)
            self.again = Conv(8, 8, feature_group_count=4, rngs=rngs)
            self.pool = GlobalAvgPool()

        def __call__(self, images):
            return self.pool(self.again(jnp.tanh(self.again(self.first(images)))))

    model, state, step = abstract(lambda: Twice(nnx.Rngs(0)))
    expected = 2 * ROWS * 36 * (2 * 8 * 27 + 2 * 3 * 8 * 18)
    assert training_step_flops(model, (6, 6, 3), ROWS) == expected
    assert step_flops(state, step, (6, 6, 3)) == expected
