"""Logits, names and files compared with torchvision's and timm's networks, for random weights."""

import importlib
import re

import numpy as np
import pytest
from safetensors.numpy import load

from jaxcnn import models, weights
from tests.support.torch_digests import DIGESTS, digest
from tests.support.torch_networks import assert_logits_agree, logits_of_torch, randomize

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
save_file = pytest.importorskip("safetensors.torch").save_file

pytestmark = pytest.mark.peers

CASES = [(name, library) for name in DIGESTS for library in DIGESTS[name]]
# Timm's networks whose epsilon of batch norm can be chosen; weights for EfficientNetV2-S have 1e-3.
OPTIONS = {("efficientnet_v2_s", "timm"): {"bn_eps": 1e-3}}


def build(name: str, library: str):
    """The network of a library, which is skipped if that is not installed."""
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    importlib.import_module(f"{library}.models")
    its_name, _ = DIGESTS[name][library]
    if library == "torchvision":
        return module.models.get_model(its_name, weights=None)
    return module.create_model(its_name, **OPTIONS.get((name, library), {}))


@pytest.mark.parametrize(("name", "library"), CASES)
def test_logits_are_those_of_the_library_and_the_file_is_written_back(tmp_path, name, library):
    network = randomize(build(name, library))
    state = network.state_dict()
    assert (
        digest({key: tuple(value.shape) for key, value in state.items()})
        == (DIGESTS[name][library][1])
    )
    path = tmp_path / "torch.safetensors"
    save_file(state, path)
    model = models.build(name)
    assert weights.assign(model, weights.read(path, name, model)) == []
    size = (2, *models.spec(name).input_shape)
    images = np.random.default_rng(0).normal(size=size).astype(np.float32)
    assert_logits_agree(name, model, images, logits_of_torch(network, images))
    if library == "torchvision":
        content = weights.to_safetensors(weights.array_values(model), name, layout="pytorch")
        written = {key: torch.from_numpy(array) for key, array in load(content).items()}
        again = build(name, library)
        again.load_state_dict(written, strict=True)
        for key, value in again.state_dict().items():
            if not key.endswith("num_batches_tracked"):
                assert torch.equal(value, state[key]), key


def test_the_published_file_of_densenet_has_older_names(tmp_path):
    """Torchvision renames ``norm.1`` to ``norm1`` when it downloads that file."""
    state = randomize(build("densenet121", "torchvision")).state_dict()
    older = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", key): value
        for key, value in state.items()
    }
    assert "features.denseblock4.denselayer16.norm.2.running_var" in older
    for number, tensors in enumerate((state, older)):
        save_file(tensors, tmp_path / f"{number}.safetensors")
    model = models.build("densenet121")
    current, read = (
        weights.read(tmp_path / f"{number}.safetensors", "densenet121", model)
        for number in range(2)
    )
    assert current.keys() == read.keys()
    assert all(np.array_equal(current[name], read[name]) for name in current)
