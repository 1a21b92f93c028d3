"""PyTorch and Keras compute the same as ours: logits, and the losses of the first two steps."""

import dataclasses

import pytest

from experiments.peers import verdict
from experiments.peers.layers import Task
from experiments.peers.networks import NETWORKS
from experiments.peers.ours import Ours
from tests.support.peers import make_task

pytestmark = pytest.mark.peers

SIDES = {"darknet19": 32, "cats_vs_dogs": 72, "lenet5": 32, "resnet18_cifar": 8}  # others have 16
# Batch norms over the four images only, which magnify the rounding of nearly equal values.
NORMS_OVER_FOUR = {"cats_vs_dogs"}


def build_peer(library: str, task: Task):
    if library == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[peers]'")
        from experiments.peers.in_torch import Torch

        return Torch(task, channels_last=True)
    pytest.importorskip(
        "tensorflow", reason="TensorFlow is not installed: pip install -e '.[peers]'"
    )
    from experiments.peers.in_keras import Keras

    return Keras(task)


def outputs_of(network) -> dict:
    return {"logits": network.logits().tolist(), "losses": network.losses(2)}


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=pytest.mark.slow if n in SIDES else ()) for n in NETWORKS],
)
def task_and_outputs(request) -> tuple[Task, dict]:
    """The task of a network, and the outputs of ours."""
    side = SIDES.get(request.param, 16)
    model = "mlp:16" if request.param == "mlp" else request.param
    task = make_task(model, side, learning_rate=0.01, weight_decay=0.05).without_dropout()
    return task, outputs_of(Ours(task))


@pytest.mark.parametrize("library", ["torch", "keras"])
def test_a_network_is_the_same_in_another_library(library, task_and_outputs, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    task, ours = task_and_outputs
    peer = build_peer(library, task)
    theirs = outputs_of(peer)
    differences, disagreements = verdict.check_agreement({"ours": ours, library: theirs})
    print(task.model, differences[library])
    tolerance = 1e-2 if task.model in NORMS_OVER_FOUR else 1e-3
    assert disagreements == {} and differences[library]["second_loss"] < tolerance
    peer.train(2)
    assert peer.losses(1)[0] != pytest.approx(theirs["losses"][1], rel=1e-6), "training continues"


@pytest.mark.parametrize("library", ["torch", "keras"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_an_optimizer_is_the_same_in_another_library(library, optimizer, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    task = dataclasses.replace(make_task("logistic", 8, learning_rate=0.01), optimizer=optimizer)
    ours, peer = Ours(task), build_peer(library, task)
    assert peer.losses(6) == pytest.approx(ours.losses(6), rel=1e-4)
