"""The peer in PyTorch: its own modules and fused optimizers, eager or compiled."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.peers import layers
from experiments.peers.layers import Layer, Task

if TYPE_CHECKING:
    import torch
    from torch import nn

Shape = tuple[int, ...]


class Torch:
    """A network in PyTorch.

    Args:
      channels_last: the memory format of images and kernels.
      compiled: whether it is compiled with `torch.compile`, with default options.
    """

    def __init__(self, task: Task, *, channels_last: bool = False, compiled: bool = False):
        import torch

        torch.set_num_threads(task.threads)
        memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.torch = torch
        builder = _Builder(task)
        height, width, channels = task.images.shape[1:]
        module = builder.chain(task.layers, (channels, height, width))
        self.module = module.to(memory_format=memory_format)
        self.optimizer = _optimizer(task, builder.modules)
        self.forward = torch.compile(self.module) if compiled else self.module
        images = torch.from_numpy(task.images.transpose(0, 3, 1, 2).copy())
        self.images = images.contiguous(memory_format=memory_format)
        self.labels = torch.from_numpy(task.labels.astype(np.float32 if task.binary else np.int64))
        self.binary = task.binary

    def logits(self) -> np.ndarray:
        """The logits of the batch in evaluation, ``f32[N, outputs]``."""
        self.module.eval()
        with self.torch.inference_mode():
            return self.forward(self.images).numpy()

    def losses(self, steps: int) -> list[float]:
        """Takes steps; returns the cross-entropy of each, before its update."""
        self.module.train()
        return [self._step().item() for _ in range(steps)]

    def train(self, steps: int) -> None:
        """Takes steps and waits for them."""
        self.module.train()
        for _ in range(steps):
            self._step()

    def infer(self, calls: int) -> None:
        """Makes forward passes and waits for them."""
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


def _optimizer(task: Task, modules: dict[str, "nn.Module"]) -> "torch.optim.Optimizer":
    """The fused optimizer of a task.

    PyTorch adds the weight decay to the gradient, which under SGD, with or without momentum, equals
    a term of the loss.
    """
    from torch import optim

    decayed = [
        module.weight
        for name, module in modules.items()
        if module.weight.ndim > 1 and task.has_weight_decay(name)
    ]
    others = [
        parameter
        for module in modules.values()
        for parameter in module.parameters()
        if all(parameter is not weight for weight in decayed)
    ]
    groups: list[dict] = [{"params": others}]
    if decayed:
        groups.append({"params": decayed, "weight_decay": task.weight_decay})
    if task.optimizer == "adam":
        return optim.Adam(groups, lr=task.learning_rate, eps=1e-8, fused=True)
    momentum = 0.9 if task.optimizer == "momentum" else 0.0
    return optim.SGD(groups, lr=task.learning_rate, momentum=momentum, fused=True)


class _Builder:
    """Builds modules with their weights from layers; `modules` has those with weights, by name."""

    def __init__(self, task: Task):
        self.task = task
        self.modules: dict[str, nn.Module] = {}

    def chain(self, chain: tuple[Layer, ...], shape: Shape) -> "nn.Sequential":
        """The modules for inputs of a shape ``C, H, W``.

        Each module runs on zeros, which gives the shape of its outputs.
        """
        import torch

        built, unflattened = [], shape
        for layer in chain:
            module = self._build(layer, shape, unflattened).eval()
            with torch.no_grad():
                outputs = tuple(module(torch.zeros(1, *shape)).shape[1:])
            unflattened = shape if isinstance(layer, layers.Flatten) else outputs
            shape = outputs
            built.append(module)
        return torch.nn.Sequential(*built)

    def _build(self, layer: Layer, shape: Shape, unflattened: Shape) -> "nn.Module":
        """The module of a layer.

        Args:
          layer: to build.
          shape: of its inputs.
          unflattened: their shape before `Flatten` if that was the previous layer, else the same.
        """
        from torch import nn

        match layer:
            case layers.Conv() | layers.Dense() | layers.Norm():
                return self._build_with_weights(layer, unflattened)
            case layers.Activation(kind):
                return {"relu": nn.ReLU(), "tanh": nn.Tanh(), "leaky_relu": nn.LeakyReLU(0.1)}[kind]
            case layers.Pool():
                return _pool(layer, shape[1:])
            case layers.ResponseNorm(radius, bias, alpha, beta):
                size = 2 * radius + 1  # PyTorch divides alpha by the number of channels
                return nn.LocalResponseNorm(size, alpha * size, beta, bias)
            case layers.Dropout(rate):
                return nn.Dropout(rate)
            case layers.Flatten():
                return nn.Flatten()
            case layers.GlobalAverage():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            case layers.Residual(body, shortcut):
                return _residual(self.chain(body, shape), self.chain(shortcut, shape))

    def _build_with_weights(
        self, layer: layers.Conv | layers.Dense | layers.Norm, unflattened: Shape
    ) -> "nn.Module":
        from torch import nn

        weights = self.task.layer_weights(layer.name)
        if isinstance(layer, layers.Norm):
            kind = nn.BatchNorm2d if len(unflattened) == 3 else nn.BatchNorm1d
            module = kind(len(weights["scale"]), layer.epsilon, momentum=1 - layer.momentum)
        elif isinstance(layer, layers.Dense):
            module = nn.Linear(*weights["kernel"].shape)
            weights["kernel"] = _to_channels_first(weights["kernel"], unflattened)
        else:
            side, _, inputs, outputs = weights["kernel"].shape
            padding = side // 2 if layer.padding is None else layer.padding
            has_bias = "bias" in weights
            module = nn.Conv2d(inputs, outputs, side, layer.strides, padding, bias=has_bias)
            weights["kernel"] = weights["kernel"].transpose(3, 2, 0, 1)
        _load(module, weights)
        self.modules[layer.name] = module
        return module


_TORCH_NAMES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def _load(module: "nn.Module", weights: dict[str, np.ndarray]) -> None:
    import torch

    state = {_TORCH_NAMES[name]: torch.from_numpy(w.copy()) for name, w in weights.items()}
    module.load_state_dict(module.state_dict() | state)


def _to_channels_first(kernel: np.ndarray, unflattened: Shape) -> np.ndarray:
    """A dense kernel for PyTorch: ``[inputs, outputs]`` to ``[outputs, inputs]``.

    If its inputs were flattened, they are reordered from ``H, W, C`` to ``C, H, W``.
    """
    if len(unflattened) == 3:
        channels, height, width = unflattened
        kernel = kernel.reshape(height, width, channels, -1).transpose(2, 0, 1, 3)
        kernel = kernel.reshape(channels * height * width, -1)
    return kernel.T


def _pool(layer: layers.Pool, sides: Shape) -> "nn.Module":
    """With `same`, TensorFlow puts the odd pixel of padding at the end, as `ceil_mode` does."""
    from torch import nn

    if layer.kind == "average":
        return nn.AvgPool2d(layer.window, layer.strides)
    padding = [_same_padding(layer, side) if layer.same else 0 for side in sides]
    return nn.MaxPool2d(
        layer.window,
        layer.strides,
        tuple(pixels // 2 for pixels in padding),
        ceil_mode=any(pixels % 2 for pixels in padding),
    )


def _same_padding(layer: layers.Pool, side: int) -> int:
    """Pixels that TensorFlow's ``same`` adds along an axis, at both ends together."""
    windows = -(-side // layer.strides)
    return max(0, (windows - 1) * layer.strides + layer.window - side)


def _residual(body: "nn.Module", shortcut: "nn.Module") -> "nn.Module":
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x):
            return self.body(x) + self.shortcut(x)

    return Residual()
