"""The descriptions of networks, and plain Flax built from them, compared with ours."""

import pytest
from flax import nnx

from experiments.peers import layers, networks, verdict
from experiments.peers.in_flax import Flax
from experiments.peers.ours import Ours
from jaxcnn import models, weights
from tests.support.peers import make_task


def layer_names(chain):
    for layer in chain:
        if isinstance(layer, layers.Residual):
            yield from layer_names((*layer.body, *layer.shortcut))
        elif hasattr(layer, "name"):
            yield layer.name


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_each_layer_with_weights_is_described_once(name):
    described = list(layer_names(networks.network_layers(name)))
    paths = weights.array_shapes(nnx.eval_shape(lambda: models.build(name)))
    assert sorted(described) == sorted({path.rpartition(".")[0] for path in paths})


@pytest.mark.parametrize(("model", "side"), [("cifar_tutorial", 8), ("mlp:8", 8)])
def test_plain_flax_with_weight_decay_computes_the_same_as_ours(model, side):
    task = make_task(model, side, learning_rate=0.1, weight_decay=0.05).without_dropout()
    ours, flax = Ours(task), Flax(task)
    outputs = {
        name: {"logits": peer.logits().tolist(), "losses": peer.losses(2)}
        for name, peer in (("ours", ours), ("flax", flax))
    }
    differences, disagreements = verdict.check_agreement(outputs)
    assert disagreements == {} and differences["flax"]["second_loss"] < 1e-5
    ours.train(3)  # training continues across dispatches and epochs
    ours.once(2)
    flax.train(5)
    assert ours.steps_done == 7 and ours.losses(1) == pytest.approx(flax.losses(1), rel=1e-3)


def test_dropout_is_excluded_from_compared_losses_but_not_from_timed_steps():
    task = make_task("mlp:8", 8)
    compared = Ours(task.without_dropout()).losses(1)
    assert compared == Flax(task.without_dropout()).losses(1)
    assert Ours(task).losses(1) != pytest.approx(compared, rel=1e-6)
