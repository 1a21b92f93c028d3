"""Logits compared with PyTorch's, for the same random weights, at the published image sizes."""

import numpy as np
import pytest

from jaxcnn import models, weights
from tests.support.torch_networks import assert_logits_agree, logits_of_torch, randomize

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
save_file = pytest.importorskip("safetensors.torch").save_file
nn = torch.nn

pytestmark = pytest.mark.peers


class TorchVGG16(nn.Module):
    """The names and the order of layers of torchvision's `vgg16`."""

    PLAN = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)

    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for width in self.PLAN:
            layers += (
                [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
            )
            inputs = width or inputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 1000),
        )

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class TorchAlexNet(nn.Module):
    """Krizhevsky et al. 2012, with two groups. PyTorch divides the α of LRN by its size."""

    def __init__(self):
        super().__init__()
        norm = nn.LocalResponseNorm(size=5, alpha=5e-4, beta=0.75, k=2.0)
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(96, 256, 5, padding=2, groups=2), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(256, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 384, 3, padding=1, groups=2), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, 1000),
        )

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class TorchBottleneck(nn.Module):
    """Torchvision's `Bottleneck`, whose stride is in the 3×3 convolution."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class TorchResNet50(nn.Module):
    """Torchvision's `resnet50`."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.maxpool, self.avgpool = nn.MaxPool2d(3, 2, padding=1), nn.AdaptiveAvgPool2d(1)
        inputs = 64
        for stage, count in enumerate((3, 4, 6, 3), 1):
            width = 32 * 2**stage
            blocks = []
            for block in range(count):
                blocks.append(TorchBottleneck(inputs, width, 2 if stage > 1 and not block else 1))
                inputs = 4 * width
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


NETWORKS = {"vgg16": TorchVGG16, "resnet50": TorchResNet50, "alexnet": TorchAlexNet}
# The standard deviation of the images, 1 by default; response normalization matters only for large
# activations.
IMAGE_SCALES = {"alexnet": 50.0}


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_those_of_pytorch(tmp_path, name):
    network = randomize(NETWORKS[name]())
    save_file(network.state_dict(), tmp_path / "torch.safetensors")
    model = models.build(name)
    assert weights.assign(model, weights.read(tmp_path / "torch.safetensors", name, model)) == []
    (tmp_path / "torch.safetensors").unlink()
    size = (2, *models.spec(name).input_shape)
    images = np.random.default_rng(0).normal(scale=IMAGE_SCALES.get(name, 1.0), size=size)
    images = images.astype(np.float32)
    assert_logits_agree(name, model, images, logits_of_torch(network, images))
