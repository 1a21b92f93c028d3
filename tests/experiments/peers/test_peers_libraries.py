"""PyTorch and Keras compute the same as ours: logits, the loss of a training step, and the loss after its update."""

import dataclasses

import pytest

from experiments.peers import verdict
from experiments.peers.layers import Task
from experiments.peers.networks import NETWORKS
from experiments.peers.ours import Ours
from tests.experiments.studies.test_peers import task

pytestmark = pytest.mark.peers

SIDES = {
    "darknet19": 32,
    "cats_vs_dogs": 72,
    "lenet5": 32,
    "resnet18_cifar": 8,
}  # of the images, 16 for the others
FOUR_ROWS = {
    "cats_vs_dogs"
}  # are all that its batch norms see here: they magnify the rounding of what is nearly alike in all four


def built(library: str, asked: Task):
    if library == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[peers]'")
        from experiments.peers.in_torch import Torch

        return Torch(asked, channels_last=True)
    pytest.importorskip(
        "tensorflow", reason="TensorFlow is not installed: pip install -e '.[peers]'"
    )
    from experiments.peers.in_keras import Keras

    return Keras(asked)


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=pytest.mark.slow if n in SIDES else ()) for n in NETWORKS],
)
def ours(request) -> tuple[Task, dict]:
    side = SIDES.get(request.param, 16)
    model = "mlp:16" if request.param == "mlp" else request.param
    asked = task(model, side, learning_rate=0.01, weight_decay=0.05).without_dropout()
    one = Ours(asked)
    return asked, {"logits": one.logits().tolist(), "losses": one.losses(2)}


@pytest.mark.parametrize("library", ["torch", "keras"])
def test_a_network_is_the_same_in_another_library(library, ours, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    asked, answer = ours
    peer = built(library, asked)
    found = {"ours": answer, library: {"logits": peer.logits().tolist(), "losses": peer.losses(2)}}
    differences, far = verdict.agreed(found)
    print(asked.model, differences[library])
    assert far == {} and differences[library]["second_loss"] < (
        1e-2 if asked.model in FOUR_ROWS else 1e-3
    )
    peer.train(2)
    assert peer.losses(1)[0] != pytest.approx(found[library]["losses"][1], rel=1e-6), (
        "the steps go on"
    )


@pytest.mark.parametrize("library", ["torch", "keras"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_an_optimiser_is_the_same_in_another_library(library, optimizer, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    asked = dataclasses.replace(task("logistic", 8, learning_rate=0.01), optimizer=optimizer)
    ours, peer = Ours(asked), built(library, asked)
    assert peer.losses(6) == pytest.approx(ours.losses(6), rel=1e-4)
