"""PyTorch and Keras compute the same as ours: logits, and the losses of the first two steps."""

import dataclasses
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from experiments.peers import verdict
from experiments.peers.layers import Activation, Dense, Dropout, Flatten
from experiments.peers.networks import NETWORKS
from experiments.peers.ours import Ours
from experiments.peers.task import Task
from experiments.peers.user_networks import USER_NETWORKS
from tests.support.paths import ROOT
from tests.support.peers import make_task

pytestmark = pytest.mark.peers

SIDES = {  # others have 16; AlexNet's images are 2×2 when they are flattened
    "darknet19": 64,
    "cats_vs_dogs": 72,
    "lenet5": 32,
    "resnet18_cifar": 8,
    "alexnet": 99,
    "vgg11": 32,
    "googlenet": 33,
    "resnet18": 64,
    "resnet34": 64,
    "resnet50": 96,
    "depthwise_separable": 64,
    "odd_widths": 13,
    "odd_residual": 13,
    "mobilenet_v2": 96,
    "efficientnet_b0": 64,
    "convnext_tiny": 32,
    "densenet121": 64,
}
FAST = {"lenet5", "odd_widths", "odd_residual"}
# They magnify rounding: batch norms over the four images only, and fifty layers of them.
ILL_CONDITIONED = {"cats_vs_dogs", "resnet50"}
# With the others' rate of 0.01, a first step of deep batch norms overshoots, and magnifies the
# rounding of its gradient; their sides leave batch norms enough values.
SMALL_RATE = 1e-4
DEEP_NORMS = {
    "depthwise_separable",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
}


def is_missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


# Conditions, so that what is skipped computes nothing of ours first.
LIBRARIES = [
    pytest.param(
        name, marks=pytest.mark.skipif(is_missing(package), reason=f"{package} is not installed")
    )
    for name, package in (("torch", "torch"), ("keras", "tensorflow"))
]


def build_peer(library: str, task: Task):
    if library == "torch":
        from experiments.peers.in_torch import Torch

        return Torch(task, channels_last=True)
    from experiments.peers.in_keras import Keras

    return Keras(task)


def outputs_of(network) -> dict:
    return {"logits": network.logits().tolist(), "losses": network.losses(2)}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if name in SIDES and name not in FAST else ())
        for name in (*NETWORKS, *USER_NETWORKS)
    ],
)
def task_and_outputs(request) -> tuple[Task, dict]:
    """The task of a network, and the outputs of ours."""
    side = SIDES.get(request.param, 16)
    model = "mlp:16" if request.param == "mlp" else request.param
    rate = SMALL_RATE if model in DEEP_NORMS else 0.01
    task = make_task(model, side, learning_rate=rate, weight_decay=0.05).without_dropout()
    return task, outputs_of(Ours(task))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_network_is_the_same_in_another_library(library, task_and_outputs, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    task, ours = task_and_outputs
    peer = build_peer(library, task)
    theirs = outputs_of(peer)
    differences, disagreements = verdict.check_agreement({"ours": ours, library: theirs})
    print(task.model, differences[library])
    tolerance = 1e-2 if task.model in ILL_CONDITIONED else 1e-3
    assert disagreements == {} and differences[library]["second_loss"] < tolerance
    peer.train(2)
    assert peer.losses(1)[0] != pytest.approx(theirs["losses"][1], rel=1e-6), "training continues"


def test_networks_in_bfloat16_are_about_the_same():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[peers]'")
    task = make_task("cifar_tutorial", 24, learning_rate=0.01).without_dropout()
    single = outputs_of(Ours(task))
    half = dataclasses.replace(task, precision="bfloat16")
    outputs = {"ours": outputs_of(Ours(half)), "torch": outputs_of(build_peer("torch", half))}
    differences, disagreements = verdict.check_agreement(outputs, "bfloat16")
    assert disagreements == {}
    for result in outputs.values():  # each has its own rounding errors
        errors, _ = verdict.check_agreement({"ours": single, "half": result}, "bfloat16")
        assert 1e-4 < errors["half"]["logits"] < 0.05
    assert differences["torch"]["logits"] > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_dropout_and_activations_between_flattening_and_a_dense_layer(library, monkeypatch):
    """The logits are ``relu(images) @ kernel`` over height, width and channels, in that order."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(4, 2, 3, 5)).astype(np.float32)
    kernel = rng.normal(size=(30, 7)).astype(np.float32)
    layers = (Flatten(), Dropout(0.5), Activation("relu"), Dense("out"))
    weights = {"out.kernel": kernel, "out.bias": np.zeros(7, np.float32)}
    task = dataclasses.replace(
        make_task("logistic", 2), layers=layers, weights=weights, images=images
    )
    expected = np.maximum(images, 0).reshape(4, 30) @ kernel
    assert build_peer(library, task).logits() == pytest.approx(expected, abs=1e-5)


def test_a_frozen_network_infers_the_same():
    """In a process of its own: freezing is a setting of the whole process."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[peers]'")
    code = (
        "from tests.support.peers import make_task\n"
        "from experiments.peers.in_torch import Torch\n"
        "task = make_task('lenet_like', 16)\n"
        "frozen = Torch(task, frozen=True)\n"
        "frozen.infer(2)\n"
        "import torch._inductor.config as config\n"
        "print(abs(frozen.logits() - Torch(task).logits()).max(), config.freezing)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    difference, freezing = done.stdout.split()
    assert float(difference) < 1e-5 and freezing == "True"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_an_optimizer_is_the_same_in_another_library(library, optimizer, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    task = dataclasses.replace(make_task("logistic", 8, learning_rate=0.01), optimizer=optimizer)
    ours, peer = Ours(task), build_peer(library, task)
    assert peer.losses(6) == pytest.approx(ours.losses(6), rel=1e-4)
