"""Digests of the names and shapes of the tensors of torchvision's and timm's networks.

Computed from torchvision 0.28 and timm 1.0.31; `test_against_torchvision.py` computes them again
where these are installed.
"""

import hashlib
from collections.abc import Mapping

# By our name of the network and by library, the library's name of the network and the digest.
DIGESTS = {
    "mobilenet_v2": {
        "torchvision": ("mobilenet_v2", "b99e906ecb198584"),
        "timm": ("mobilenetv2_100", "9b0466bede14c105"),
    },
    "mobilenet_v3_large": {
        "torchvision": ("mobilenet_v3_large", "44121f8c7f52253f"),
        "timm": ("mobilenetv3_large_100", "a820203e3e2e8435"),
    },
    "efficientnet_b0": {
        "torchvision": ("efficientnet_b0", "83da93109f2fe994"),
        "timm": ("efficientnet_b0", "d71c3ddba951541a"),
    },
    "efficientnet_v2_s": {
        "torchvision": ("efficientnet_v2_s", "5a7e3523751dafa5"),
        "timm": ("efficientnetv2_s", "acac2e8f1b5a3a90"),
    },
    "convnext_tiny": {
        "torchvision": ("convnext_tiny", "4457d42f74d70e80"),
        "timm": ("convnext_tiny", "6216218e2bd18aa3"),
    },
    "densenet121": {
        "torchvision": ("densenet121", "33896f20ed3be1e2"),
        "timm": ("densenet121", "33896f20ed3be1e2"),
    },
    "regnet_y_400mf": {
        "torchvision": ("regnet_y_400mf", "759f25cf30418045"),
        "timm": ("regnety_004", "efef8d48b0ac4e2c"),
    },
    "resnext50_32x4d": {
        "torchvision": ("resnext50_32x4d", "74305953a27d9af6"),
        "timm": ("resnext50_32x4d", "74305953a27d9af6"),
    },
    "squeezenet1_1": {"torchvision": ("squeezenet1_1", "9475e1029a69a249")},
    "shufflenet_v2": {"torchvision": ("shufflenet_v2_x1_0", "60121c9be64622f6")},
}


def digest(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The digest of names and shapes, in any order, without batch norm's counters."""
    lines = sorted(
        f"{name} {'×'.join(map(str, shape))}"
        for name, shape in shapes.items()
        if not name.endswith("num_batches_tracked")
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
