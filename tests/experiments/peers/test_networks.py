"""The descriptions of networks, and plain Flax built from them, compared with ours."""

import dataclasses
import math

import numpy as np
import pytest
from flax import nnx

from experiments.measure.flops import model_flops
from experiments.peers import layers, networks, verdict
from experiments.peers.definition import define
from experiments.peers.flax_network import build_network
from experiments.peers.in_flax import Flax
from experiments.peers.layer_builder import draw_weights
from experiments.peers.ours import Ours
from experiments.peers.user_networks import USER_NETWORKS
from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.ops import native
from tests.support.native import lowered_text, requires_kernels
from tests.support.peers import make_task


def layer_names(chain):
    for layer in chain:
        match layer:
            case layers.Residual(body, shortcut):
                yield from layer_names((*body, *shortcut))
            case layers.Gate(body):
                yield from layer_names(body)
            case layers.Concatenation(branches):
                for branch in branches:
                    yield from layer_names(branch)
            case _ if hasattr(layer, "name"):
                yield layer.name


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_each_layer_with_weights_is_described_once(name):
    described = list(layer_names(define(name).layers))
    paths = weights.array_shapes(nnx.eval_shape(lambda: models.build(name)))
    assert sorted(described) == sorted({path.rpartition(".")[0] for path in paths})


# Parameters and GFLOP of the forward pass, two for each multiply-add: those of torchvision 0.28.
PUBLISHED = {
    "mobilenet_v2": (3_504_872, 0.60),
    "efficientnet_b0": (5_288_548, 0.77),
    "convnext_tiny": (28_589_128, 8.91),
    "densenet121": (7_978_856, 5.67),
}


@pytest.mark.parametrize("name", USER_NETWORKS)
def test_each_weight_of_a_users_network_belongs_to_a_layer(name):
    definition = define(name)
    described = list(layer_names(definition.layers))
    registered = {weight.rpartition(".")[0] for weight in definition.weight_shapes}
    assert sorted(described) == sorted(registered)


@pytest.mark.standard_promotion
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_network_has_its_published_size(name):
    parameters, gflop = PUBLISHED[name]
    shapes = define(name).weight_shapes
    trained = {n: s for n, s in shapes.items() if n.rpartition(".")[2] not in ("mean", "var")}
    assert sum(math.prod(shape) for shape in trained.values()) == parameters
    task = dataclasses.replace(make_task(name, 224), images=np.zeros((1, 224, 224, 3), np.float32))

    def forward(images):  # built while it is traced, so that nothing is compiled
        model = build_network(task)
        model.eval()
        return model(images)

    assert model_flops(forward, task.images) / 1e9 == pytest.approx(gflop, rel=0.03)


def test_weights_that_are_left_out_would_be_noticed():
    drawn = draw_weights({"norm.scale": (64,), "norm.bias": (64,), "norm.var": (64,)}, seed=1)
    assert drawn["norm.scale"].dtype == np.float32
    assert drawn["norm.scale"].std() > 0.05 and abs(drawn["norm.scale"].mean() - 1) < 0.1
    assert drawn["norm.bias"].std() > 0.05 and drawn["norm.var"].min() >= 1


@pytest.mark.parametrize("model", ["vgg16", "mobilenet_v2:8", "no_such"])
def test_an_unknown_network_is_an_error(model):
    with pytest.raises(InputError, match=f"unknown network of study peers '{model}'"):
        define(model)


# Hand-worked: windows of 3 with a stride of 2 over 7, 8 and 2 pixels.
@pytest.mark.parametrize(
    ("padding", "side", "pads"),
    [
        (0, 7, (0, 0)),
        (1, 7, (1, 1)),
        ("same", 7, (1, 1)),
        ("same", 8, (0, 1)),
        ("ceil", 7, (0, 0)),
        ("ceil", 8, (0, 1)),
        ("ceil", 2, (0, 1)),
    ],
)
def test_pads_of_a_pool(padding, side, pads):
    assert layers.Pool("max", 3, 2, padding).pads(side) == pads


def test_a_window_that_starts_beyond_the_images_is_no_window():
    assert layers.Pool("max", 1, 2, "ceil").pads(2) == (0, 0)


def test_an_average_pool_with_padding_is_an_error():
    with pytest.raises(ValueError, match="average pools have no padding"):
        layers.Pool("average", 3, 1, "same")


@requires_kernels
@pytest.mark.parametrize("model", ["mlp:1024", "odd_residual"])
def test_fixed_weights_give_the_same_logits(model):
    task = make_task(model, 9)
    logits = Ours(task).logits()
    error = np.abs(Ours(task, frozen=True).logits() - logits).max()
    assert error <= 1e-5 * np.abs(logits).max()


def test_ours_of_a_users_network_is_plain_flax_with_kernels():
    ours = Ours(make_task("odd_residual", 9))
    assert native.CALL_PREFIX in lowered_text(ours.step, ours.state, ours.batch)


@pytest.mark.parametrize(
    # Of 9 × 9 pixels, one input of a rectifier is zero up to rounding, and its gradient is either.
    ("model", "side"),
    [("cifar_tutorial", 8), ("mlp:8", 8), ("odd_residual", 10), ("cnn_3d", 8)],
)
def test_plain_flax_with_weight_decay_computes_the_same_as_ours(model, side):
    task = make_task(model, side, learning_rate=0.1, weight_decay=0.05).without_dropout()
    ours, flax = Ours(task), Flax(task)
    outputs = {
        name: {"logits": peer.logits().tolist(), "losses": peer.losses(2)}
        for name, peer in (("ours", ours), ("flax", flax))
    }
    differences, disagreements = verdict.check_agreement(outputs)
    assert disagreements == {} and differences["flax"]["second_loss"] < 1e-5
    ours.many_steps(3)  # training continues across calls and epochs
    ours.train(2)
    flax.train(5)
    assert ours.steps_done == 7 and ours.losses(1) == pytest.approx(flax.losses(1), rel=1e-3)


def test_dropout_is_excluded_from_compared_losses_but_not_from_timed_steps():
    task = make_task("mlp:8", 8)
    compared = Ours(task.without_dropout()).losses(1)
    assert compared == Flax(task.without_dropout()).losses(1)
    assert Ours(task).losses(1) != pytest.approx(compared, rel=1e-6)
