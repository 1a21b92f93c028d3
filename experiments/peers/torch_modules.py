"""Modules of PyTorch for layers without a module of their own, and pools and activations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.peers import layers

if TYPE_CHECKING:
    from torch import nn


def activation(kind: str) -> "nn.Module":
    """The module of an elementwise function."""
    from torch import nn

    return {
        "relu": nn.ReLU(),
        "leaky_relu": nn.LeakyReLU(0.1),
        "relu6": nn.ReLU6(),
        "tanh": nn.Tanh(),
        "sigmoid": nn.Sigmoid(),
        "silu": nn.SiLU(),
        "gelu": nn.GELU(),
    }[kind]


def pool(layer: layers.Pool, sides: Sequence[int]) -> "nn.Module":
    """A pool over images with these sides; `ceil_mode` adds the odd pixels at the end."""
    from torch import nn

    kinds: dict[tuple[str, int], Any] = {
        ("max", 2): nn.MaxPool2d,
        ("max", 3): nn.MaxPool3d,
        ("average", 2): nn.AvgPool2d,
        ("average", 3): nn.AvgPool3d,
    }
    kind = kinds[layer.kind, len(sides)]
    pads = [layer.pads(side) for side in sides]
    ceil_mode = any(start != end for start, end in pads)
    return kind(layer.window, layer.strides, tuple(start for start, _ in pads), ceil_mode=ceil_mode)


def global_average(axes: int, keep_axes: bool) -> "nn.Module":
    """The mean over all axes of the images."""
    from torch import nn

    average: Any = {2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[axes]
    return average(1) if keep_axes else nn.Sequential(average(1), nn.Flatten())


def residual(body: "nn.Module", shortcut: "nn.Module") -> "nn.Module":
    """``body(x) + shortcut(x)``."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x):
            return self.body(x) + self.shortcut(x)

    return Residual()


def gate(body: "nn.Module") -> "nn.Module":
    """``x * body(x)``."""
    from torch import nn

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return x * self.body(x)

    return Gate()


def concatenation(branches: Sequence["nn.Module"]) -> "nn.Module":
    """The outputs of branches, concatenated along the channels."""
    import torch
    from torch import nn

    class Concatenation(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x):
            return torch.cat([branch(x) for branch in self.branches], dim=1)

    return Concatenation()


def channel_norm(channels: int, epsilon: float) -> "nn.Module":
    """Layer norm over the channels; the axes are moved, which copies nothing in channels-last."""
    from torch import nn

    class ChannelNorm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.movedim(1, -1)).movedim(-1, 1)

    return ChannelNorm(channels, eps=epsilon)


def scale(channels: int, axes: int) -> "nn.Module":
    """A factor for each channel of images with this many axes."""
    import torch
    from torch import nn

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(channels))

        def forward(self, x):
            return x * self.weight.view(-1, *(1,) * axes)

    return Scale()
