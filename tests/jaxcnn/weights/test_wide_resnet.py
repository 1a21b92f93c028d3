"""WideResNet's logits compared with a PyTorch module written from the paper."""

import numpy as np
import pytest

from jaxcnn import models, weights
from tests.support.torch_networks import assert_logits_agree, logits_of_torch, randomize

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
nn = torch.nn

pytestmark = pytest.mark.peers


class TorchBlock(nn.Module):
    """Zagoruyko & Komodakis 2016, figure 1c: B(3,3), pre-activation."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.dim = None
        if inputs != width:
            self.dim = nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.bn1(x))
        z = self.conv2(torch.relu(self.bn2(self.conv1(y))))
        return z + (x if self.dim is None else self.dim(y))


class TorchWideResNet(nn.Module):
    """Table 1 with k = 10, N = 4."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        blocks, inputs = [], 16
        for width, stride in ((160, 1), (320, 2), (640, 2)):
            for number in range(4):
                blocks.append(TorchBlock(inputs, width, 1 if number else stride))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.bn, self.fc = nn.BatchNorm2d(640), nn.Linear(640, 10)

    def forward(self, x):
        x = torch.relu(self.bn(self.blocks(self.conv0(x))))
        return self.fc(nn.functional.avg_pool2d(x, 8).flatten(1))


# Our names by the module's.
MODULES = {
    "conv0": "stem",
    "bn": "norm.norm",
    "fc": "out",
    **{
        f"blocks.{number}.{torch_name}": f"blocks.layers.{number}.{name}"
        for number in range(12)
        for torch_name, name in {
            "bn1": "norm1.norm",
            "bn2": "norm2.norm",
            "conv1": "conv1",
            "conv2": "conv2",
            "dim": "shortcut",
        }.items()
    },
}
AXES = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
LEAVES = {"bias": "bias", "running_mean": "mean", "running_var": "var"}


def test_logits_are_those_of_the_paper():
    network, ours = randomize(TorchWideResNet()), {}
    for name, value in network.state_dict().items():
        module, _, leaf = name.rpartition(".")
        if leaf != "num_batches_tracked":
            array = value.numpy()
            leaf = LEAVES.get(leaf) or ("scale" if array.ndim == 1 else "kernel")
            ours[f"{MODULES[module]}.{leaf}"] = array.transpose(AXES[array.ndim])
    model = models.build("wide_resnet28_10")
    assert weights.assign(model, ours) == []
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    expected = logits_of_torch(network, images)
    assert_logits_agree("wide_resnet28_10", model, images, expected)
