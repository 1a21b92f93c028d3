"""Every network against its published figures, and one training step of each on small images."""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from experiments.measure.flops import model_flops
from experiments.measure.layers import layer_rows
from jaxcnn import detection, models, parallel, training
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout
from tests.support.closed_form import CLOSED_FORMS

CLASSIFIERS = [name for name, row in models.MODELS.items() if not row.detects]

# Total and not trainable, as the documents, torchvision and timm have them; FLOPs as the papers and torchvision do.
PUBLISHED_TOTALS = {
    "lenet5": 61_706, "lenet_like": 81_194, "mlp:4096": 20_037_642, "deep_mnist": 3_274_634, "cifar_tutorial": 1_068_298,
    "cats_vs_dogs": 21_463_713 - 8_192, "darknet19": 20_842_376, "alexnet": 60_965_224, "vgg11": 132_863_336,
    "vgg16": 138_357_544, "vgg19": 143_667_240, "googlenet": 6_998_552, "googlenet_aux": 13_378_280,
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
    "resnet152": 60_192_808, "inception_v4": 42_679_816, "inception_resnet_v2": 55_843_464,
}  # fmt: skip
PUBLISHED_GFLOPS = {
    "darknet19": 7.29, "vgg11": 2 * 7.609, "vgg16": 2 * 15.47, "vgg19": 2 * 19.632, "resnet18": 2 * 1.814,
    "resnet34": 2 * 3.664, "resnet50": 2 * 4.089, "resnet101": 2 * 7.801, "resnet152": 2 * 11.514,
}  # fmt: skip


@functools.cache
def published(name: str) -> nnx.Module:
    """The network at its published size, its numbers abstract."""
    return nnx.eval_shape(lambda: models.build(name))


@functools.cache
def published_rows(name: str):
    return layer_rows(published(name), models.spec(name).input_shape)


def forward(model: nnx.Module, images):
    model = nnx.merge(*nnx.split(model), copy=True)
    model.eval()
    return model(images)


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_totals_flops_and_shape_against_the_closed_form(name):
    walk, row, model = CLOSED_FORMS[name](), models.spec(name), published(name)
    assert models.count_parameters(model) == walk.trainable
    assert models.count_non_trainable(model) == walk.fixed
    image = jax.ShapeDtypeStruct((1, *row.input_shape), jnp.float32)
    graphdef, state = nnx.split(model)

    def evaluate(state, x):
        return forward(nnx.merge(graphdef, state), x)

    flops = model_flops(evaluate, state, image)
    assert flops == pytest.approx(2 * walk.macs, rel=1e-3)
    shape = jax.eval_shape(evaluate, state, image).shape
    if row.detects:
        assert shape == (1, walk.rows, walk.columns, 5, walk.channels // 5)
    else:
        assert shape == (1, walk.channels)
    if ":" not in name:
        assert (row.parameters, row.non_trainable, row.flops) == (walk.trainable, walk.fixed, flops)


def test_published_totals_and_flops():
    assert {name: CLOSED_FORMS[name]().trainable for name in PUBLISHED_TOTALS} == PUBLISHED_TOTALS
    for name, gflops in PUBLISHED_GFLOPS.items():
        assert models.spec(name).flops / 1e9 == pytest.approx(gflops, rel=1e-3), name


def test_darknet19_layer_by_layer_as_published():
    """BFLOPs a layer as Darknet prints them at 256×256, to its three digits; a 1×1 within a stage has a ninth of a 3×3."""
    rows = [row for row in published_rows("darknet19") if row.kind.startswith("conv")]
    printed = [round(row.flops / 1e9, 3) for row in rows]
    assert printed == [
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


@pytest.mark.parametrize("name", models.MODELS)
def test_the_layers_hold_all_parameters_and_all_flops(name):
    rows, row = published_rows(name), models.spec(name)
    assert sum(layer.trainable for layer in rows) == row.parameters
    assert sum(layer.non_trainable for layer in rows) == row.non_trainable
    if name != "googlenet_aux":  # as in training, where its heads cost something
        assert sum(layer.flops for layer in rows) == row.flops


@pytest.mark.parametrize(
    ("name", "shapes"),
    {
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
    }.items(),
)
def test_shapes_along_the_way_are_the_papers(name, shapes):
    found = {row.output_shape for row in published_rows(name)}
    assert not set(shapes) - found


# Sides on which a step is quick; what is not here is taken at its published size.
SMALL = {
    "cats_vs_dogs": 72, "darknet19": 64, "alexnet": 67, "vgg11": 32, "vgg16": 32, "vgg19": 32, "googlenet": 48,
    "googlenet_aux": 80, "resnet18": 48, "resnet34": 48, "resnet50": 48, "resnet101": 48, "resnet152": 48,
    "inception_v4": 112, "inception_resnet_v2": 80, "yolov2": 64,
}  # fmt: skip
RANDOM_IN_TRAINING = {name for name in models.MODELS if name not in ("logistic", "lenet_like", "mnist_cnn", "cifar_tutorial")} - {
    "lenet5", "lenet5_rbf",
}  # fmt: skip
KEEP_GRADIENTS = optax.GradientTransformation(
    lambda params: jax.tree.map(jnp.zeros_like, params),
    lambda grads, state, params=None: (jax.tree.map(jnp.zeros_like, grads), grads),
)
ROWS = 8


@dataclass(frozen=True)
class Tried:
    """A network on small images, its weights drawn by NumPy: quick, and with biases and scales that matter."""

    name: str
    model: nnx.Module
    batch: dict

    def step(self, strategy: parallel.Jit):
        """The gradients, the metrics and the next statistics of one training step."""
        state, step = self.created("float32")
        after, metrics = strategy.compile(step)(
            strategy.place(state), strategy.place_batch(self.batch)
        )
        after = strategy.fetch(after)
        return after.opt_state, training.means(jax.device_get(metrics)), after.model_state

    def evaluated(self, precision: str):
        """Outputs and mean metrics in evaluation."""
        state, step = self.created(precision)

        def run(state, batch):
            return step.evaluation.outputs(state, batch["image"]), step.evaluation(state, batch)

        outputs, metrics = jax.jit(run, compiler_options=QUICK)(state, self.batch)
        return np.asarray(outputs), training.means(jax.device_get(metrics))

    def created(self, precision: str):
        objective = (
            {"objective": detection.region_objective} if models.spec(self.name).detects else {}
        )
        return training.create(self.model, KEEP_GRADIENTS, precision=precision, **objective)


LARGE = (
    "resnet34", "resnet50", "resnet101", "resnet152", "resnet50_cifar", "inception_v4", "inception_resnet_v2", "googlenet",
    "vgg16", "vgg19", "darknet19", "yolov2",
)  # fmt: skip
QUICK = {"xla_backend_optimization_level": 0}  # compiles in a third of the time


def quick(strategy: parallel.Jit) -> parallel.Jit:
    strategy.options = QUICK
    return strategy


@functools.lru_cache(maxsize=1)  # the large ones hold gigabytes
def tried(name: str) -> Tried:
    row, rng = models.spec(name), np.random.default_rng(0)
    side = SMALL.get(name, row.input_shape[0])
    shape = (side, side, row.input_shape[2])
    classes = min(row.num_classes, 10)
    model = nnx.eval_shape(lambda: models.build(name, num_classes=classes, input_shape=shape))
    graphdef, state = nnx.split(model)
    model = nnx.merge(graphdef, jax.tree.map_with_path(functools.partial(drawn, rng), state))
    batch = {
        "image": rng.random((ROWS, *shape), np.float32),
        "label": rng.integers(0, classes, ROWS, np.int32),
    }
    if row.detects:
        boxes = rng.uniform(0.3, 0.6, (ROWS, 2, 4)).astype(np.float32)
        batch |= {"boxes": boxes, "label": rng.integers(0, classes, (ROWS, 2), np.int32)}
    return Tried(name, model, batch)


def drawn(rng: np.random.Generator, path, leaf):
    """Kernels as He et al. 2015 draw them, biases around 0, scales and variances around 1; keys and counters as new."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    if leaf.dtype != jnp.float32:
        return jnp.zeros(leaf.shape, leaf.dtype)
    normal = rng.standard_normal(leaf.shape, np.float32)
    name = jax.tree_util.keystr(path)
    if "blocks" in name and "scale" in name and ("conv2" in name or "conv3" in name):
        return jnp.asarray(
            0.2 * np.exp(0.1 * normal)
        )  # a residual branch adds little: else rounding doubles in every block
    if leaf.ndim > 1:
        return jnp.asarray(normal * math.sqrt(2 / math.prod(leaf.shape[:-1])))
    return (
        jnp.asarray(0.1 * normal)
        if "bias" in name or "mean" in name
        else jnp.asarray(np.exp(0.1 * normal))
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in models.MODELS]
)
def test_one_step_of(name, devices):
    """Gradients reach every parameter; eight devices give what one gives; bfloat16 gives what float32 gives; modes differ."""
    network = tried(name)
    grads, metrics, statistics = network.step(quick(parallel.strategy("jit", devices)))
    for path, leaf in jax.tree.leaves_with_path(grads):
        assert np.isfinite(leaf).all() and np.any(leaf != 0), path
    assert_same_on_eight_devices(network, devices, grads, metrics, statistics)
    outputs, evaluated = network.evaluated("float32")
    assert np.isfinite(outputs).all()
    assert (abs(metrics["loss"] - evaluated["loss"]) > 1e-4 * evaluated["loss"]) == (
        name in RANDOM_IN_TRAINING
    )
    half, _ = network.evaluated("bfloat16")
    assert np.abs(half - outputs).max() <= BFLOAT16 * np.abs(outputs).max()


BFLOAT16 = (
    0.05  # of the largest output: 8 bits of mantissa, rounded once a layer, in up to 250 layers
)


def assert_same_on_eight_devices(network: Tried, devices, grads, metrics, statistics):
    """Equal but for the order of sums, which every batch norm over a few pixels enlarges (`ROUNDING`).

    A device's own statistics, or a share lost, change a gradient by a half and more.
    """
    others = network.step(quick(parallel.strategy("data", devices)))
    rounding = ROUNDING.get(network.name, 0.01)
    assert others[1]["loss"] == pytest.approx(metrics["loss"], rel=rounding)
    # a bias before batch norm has a true gradient of zero: what is left of it is compared with the largest of all
    floor = 1e-6 * max(np.linalg.norm(leaf) for leaf in jax.tree.leaves(grads))
    for ours, theirs in ((grads, others[0]), (statistics, others[2])):
        for (path, one), eight in zip(
            jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
        ):
            if jnp.issubdtype(one.dtype, jnp.floating):
                assert np.linalg.norm(one - eight) <= rounding * np.linalg.norm(one) + floor, path


# By how much the gradients of one and of eight devices may differ, as a share of each layer's norm, where not by 1 %:
# rounding grows with depth, by some 5 % a batch norm at the random weights of the first step.
ROUNDING = {
    "darknet19": 0.05, "yolov2": 0.1, "resnet18": 0.05, "resnet34": 0.05, "resnet50": 0.1, "resnet101": 0.2, "resnet152": 0.2,
    "resnet18_cifar": 0.05, "resnet50_cifar": 0.1, "inception_v4": 0.3, "inception_resnet_v2": 0.3,
}  # fmt: skip


@pytest.mark.parametrize("name", ["lenet5", "lenet_like", "mnist_cnn"])
@pytest.mark.parametrize("side", [1, 4, 8])
def test_images_too_small_are_refused(name, side):
    with pytest.raises(InputError, match=f"{name}.*{side}×{side}"):
        models.build(name, input_shape=(side, side, 1))


@pytest.mark.parametrize("name", ["mlp:0", "mlp:", "mlp:x", "lenet5:3"])
def test_bad_widths_are_refused(name):
    with pytest.raises(InputError, match="a width from 1 to 999999"):
        models.build(name)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(InputError, match="unknown model 'lenet6': did you mean 'lenet5'"):
        models.build("lenet6")


def test_the_seed_decides_the_weights():
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


def test_a_bad_dropout_rate_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1"):
        Dropout(1.0, rngs=nnx.Rngs(0))
