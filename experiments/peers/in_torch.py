"""The peer PyTorch: modules of its own, its fused optimisers, in either memory format, eager or compiled."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.peers import layers as of
from experiments.peers.layers import Layer, Task

if TYPE_CHECKING:
    import torch
    from torch import nn

Shape = tuple[int, ...]


class Torch:
    """A network in PyTorch.

    Attributes:
      channels_last: how images and kernels lie in memory.
      compiled: by `torch.compile`, at its defaults.
    """

    def __init__(self, task: Task, *, channels_last: bool = False, compiled: bool = False):
        import torch

        torch.set_num_threads(task.threads)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.torch = torch
        builder = _Builder(task)
        self.module = builder.chain(
            task.layers, (task.images.shape[3], *task.images.shape[1:3])
        ).to(memory_format=layout)
        self.optimizer = _optimizer(task, builder.named)
        self.forward = torch.compile(self.module) if compiled else self.module
        self.images = torch.from_numpy(task.images.transpose(0, 3, 1, 2).copy()).contiguous(
            memory_format=layout
        )
        self.labels = torch.from_numpy(task.labels.astype(np.float32 if task.binary else np.int64))
        self.binary = task.binary

    def logits(self) -> np.ndarray:
        """In evaluation, ``f32[N, outputs]``."""
        self.module.eval()
        with self.torch.inference_mode():
            return self.forward(self.images).numpy()

    def losses(self, steps: int) -> list[float]:
        """Cross-entropy of each of the next steps, before its update."""
        self.module.train()
        return [self._step().item() for _ in range(steps)]

    def train(self, steps: int) -> None:
        """So many steps, finished."""
        self.module.train()
        for _ in range(steps):
            self._step()

    def infer(self, calls: int) -> None:
        """So many forward passes, finished."""
        self.module.eval()
        with self.torch.inference_mode():
            for _ in range(calls):
                self.forward(self.images)

    def _step(self) -> "torch.Tensor":
        F = self.torch.nn.functional
        self.optimizer.zero_grad()
        logits = self.forward(self.images)
        if self.binary:
            loss = F.binary_cross_entropy_with_logits(logits[:, 0], self.labels)
        else:
            loss = F.cross_entropy(logits, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _optimizer(task: Task, named: dict[str, "nn.Module"]) -> "torch.optim.Optimizer":
    """PyTorch adds the decay to the gradient: under SGD, with momentum or not, the same as a term of the loss."""
    from torch import optim

    weight_decay_layers = [
        module.weight
        for name, module in named.items()
        if module.weight.ndim > 1 and task.decays(name)
    ]
    others = [
        each
        for module in named.values()
        for each in module.parameters()
        if all(each is not one for one in weight_decay_layers)
    ]
    groups = [
        {"params": others},
        *(
            [{"params": weight_decay_layers, "weight_decay": task.weight_decay}]
            if weight_decay_layers
            else []
        ),
    ]
    if task.optimizer == "adam":
        return optim.Adam(groups, lr=task.rate, eps=1e-8, fused=True)
    return optim.SGD(
        groups, lr=task.rate, momentum=0.9 if task.optimizer == "momentum" else 0.0, fused=True
    )


class _Builder:
    """Layers to modules with their weights; `named` has those that have any."""

    def __init__(self, task: Task):
        self.task, self.named = task, {}

    def chain(self, layers: tuple[Layer, ...], shape: Shape) -> "nn.Sequential":
        """Modules for images of a shape ``C, H, W``; each is tried on zeros for the shape of what it gives."""
        import torch

        built, before = [], shape
        for layer in layers:
            module = self._layer(layer, shape, before).eval()
            with torch.no_grad():
                after = tuple(module(torch.zeros(1, *shape)).shape[1:])
            before, shape = shape if isinstance(layer, of.Flatten) else after, after
            built.append(module)
        return torch.nn.Sequential(*built)

    def _layer(self, layer: Layer, shape: Shape, before: Shape) -> "nn.Module":
        """`before`: the shape before the last layer, if that was `Flatten`; else as `shape`."""
        from torch import nn

        match layer:
            case of.Conv() | of.Dense() | of.Norm():
                return self._named(layer, before)
            case of.Activation(kind):
                return {"relu": nn.ReLU(), "tanh": nn.Tanh(), "leaky_relu": nn.LeakyReLU(0.1)}[kind]
            case of.Pool():
                return _pool(layer, shape[1:])
            case of.ResponseNorm(
                radius, bias, alpha, beta
            ):  # PyTorch divides alpha by the number of channels
                return nn.LocalResponseNorm(2 * radius + 1, alpha * (2 * radius + 1), beta, bias)
            case of.Dropout(rate):
                return nn.Dropout(rate)
            case of.Flatten():
                return nn.Flatten()
            case of.GlobalAverage():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            case of.Residual(body, shortcut):
                return _residual(self.chain(body, shape), self.chain(shortcut, shape))

    def _named(self, layer: of.Conv | of.Dense | of.Norm, before: Shape) -> "nn.Module":
        from torch import nn

        leaves = self.task.leaves(layer.name)
        if isinstance(layer, of.Norm):
            kind = nn.BatchNorm2d if len(before) == 3 else nn.BatchNorm1d
            module = kind(len(leaves["scale"]), layer.epsilon, momentum=1 - layer.momentum)
        elif isinstance(layer, of.Dense):
            module = nn.Linear(*leaves["kernel"].shape)
            leaves["kernel"] = _channels_first(leaves["kernel"], before)
        else:
            side, _, inputs, outputs = leaves["kernel"].shape
            padding = side // 2 if layer.padding is None else layer.padding
            module = nn.Conv2d(inputs, outputs, side, layer.strides, padding, bias="bias" in leaves)
            leaves["kernel"] = leaves["kernel"].transpose(3, 2, 0, 1)
        self.named[layer.name] = _loaded(module, leaves)
        return module


def _loaded(module: "nn.Module", leaves: dict[str, np.ndarray]) -> "nn.Module":
    import torch

    names = {
        "kernel": "weight",
        "scale": "weight",
        "bias": "bias",
        "mean": "running_mean",
        "var": "running_var",
    }
    state = {names[leaf]: torch.from_numpy(array.copy()) for leaf, array in leaves.items()}
    module.load_state_dict(module.state_dict() | state)
    return module


def _channels_first(kernel: np.ndarray, before: Shape) -> np.ndarray:
    """``[inputs, outputs]`` to ``[outputs, inputs]``, whose inputs were flattened from ``C, H, W`` and not from ``H, W, C``."""
    if len(before) == 3:
        channels, high, wide = before
        kernel = (
            kernel.reshape(high, wide, channels, -1).transpose(2, 0, 1, 3).reshape(len(kernel), -1)
        )
    return kernel.T


def _pool(layer: of.Pool, sides: Shape) -> "nn.Module":
    """With `same`, TensorFlow pads the odd pixel at the end: what `ceil_mode` does."""
    from torch import nn

    around = [
        max(0, (-(-side // layer.strides) - 1) * layer.strides + layer.window - side)
        if layer.same
        else 0
        for side in sides
    ]
    if layer.kind == "average":
        return nn.AvgPool2d(layer.window, layer.strides)
    return nn.MaxPool2d(
        layer.window,
        layer.strides,
        tuple(pad // 2 for pad in around),
        ceil_mode=any(pad % 2 for pad in around),
    )


def _residual(body: "nn.Module", shortcut: "nn.Module") -> "nn.Module":
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x):
            return self.body(x) + self.shortcut(x)

    return Residual()
