"""A network in PyTorch's own modules, built from its layers, with its weights."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers import layers, torch_modules
from experiments.peers.layers import Layer, WithWeights
from experiments.peers.task import Task
from jaxcnn.weights.torch_names import TORCH_NAMES

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]


class NetworkBuilder:
    """Builds modules with their weights from layers; `modules` has those with weights, by name."""

    def __init__(self, task: Task):
        self.task = task
        self.modules: dict[str, nn.Module] = {}

    def network(self) -> "nn.Sequential":
        """The network of the task, for images ``f32[N, C, H, W]``."""
        *sides, channels = self.task.images.shape[1:]
        return self._chain(self.task.layers, (channels, *sides))

    def _chain(self, chain: tuple[Layer, ...], shape: Shape) -> "nn.Sequential":
        """The modules for inputs of a shape ``C, H, W``.

        Each module runs on zeros, which gives the shape of its outputs.
        """
        import torch

        built, unflattened = [], shape
        for layer in chain:
            module = self._build(layer, shape, unflattened).eval()
            with torch.no_grad():
                outputs = tuple(module(torch.zeros(1, *shape)).shape[1:])
            if isinstance(layer, layers.Flatten):
                unflattened = shape
            elif not isinstance(layer, layers.Dropout | layers.Activation):
                unflattened = outputs
            shape = outputs
            built.append(module)
        return torch.nn.Sequential(*built)

    def _build(self, layer: Layer, shape: Shape, unflattened: Shape) -> "nn.Module":
        """The module of a layer.

        Args:
          layer: to build.
          shape: of its inputs.
          unflattened: their shape before `Flatten` if nothing but dropout and activations came
            after it, else the same.
        """
        from torch import nn

        match layer:
            case layers.Residual(body, shortcut):
                return torch_modules.residual(
                    self._chain(body, shape), self._chain(shortcut, shape)
                )
            case layers.Gate(body):
                return torch_modules.gate(self._chain(body, shape))
            case layers.Concatenation(branches):
                return torch_modules.concatenation(
                    [self._chain(branch, shape) for branch in branches]
                )
            case layers.Activation(kind):
                return torch_modules.activation(kind)
            case layers.Pool():
                return torch_modules.pool(layer, shape[1:])
            case layers.ResponseNorm(radius, bias, alpha, beta):
                size = 2 * radius + 1  # PyTorch divides alpha by the number of channels
                return nn.LocalResponseNorm(size, alpha * size, beta, bias)
            case layers.Dropout(rate):
                return nn.Dropout(rate)
            case layers.Flatten():
                return nn.Flatten()
            case layers.GlobalAverage(keep_axes):
                return torch_modules.global_average(len(shape) - 1, keep_axes)
            case _:
                return self._build_with_weights(layer, unflattened)

    def _build_with_weights(self, layer: WithWeights, unflattened: Shape) -> "nn.Module":
        weights = self.task.layer_weights(layer.name)
        module = _module(layer, weights, len(unflattened) - 1)
        if isinstance(layer, layers.Dense):
            weights["kernel"] = _to_channels_first(weights["kernel"], unflattened)
        elif isinstance(layer, layers.Conv):
            weights["kernel"] = np.moveaxis(weights["kernel"], (-1, -2), (0, 1))
        _load(module, weights)
        self.modules[layer.name] = module
        return module


def _module(layer: WithWeights, weights: dict[str, np.ndarray], axes: int) -> "nn.Module":
    """The module of a layer over images with this many axes, with random weights."""
    from torch import nn

    match layer:
        case layers.Norm(_, epsilon, momentum):
            kind: Any = (nn.BatchNorm1d, None, nn.BatchNorm2d, nn.BatchNorm3d)[axes]
            return kind(len(weights["scale"]), epsilon, momentum=1 - momentum)
        case layers.LayerNorm(_, epsilon):
            return torch_modules.channel_norm(len(weights["scale"]), epsilon)
        case layers.Scale():
            return torch_modules.scale(len(weights["scale"]), axes)
        case layers.Dense():
            return nn.Linear(*weights["kernel"].shape)
        case layers.Conv():
            *sides, inputs, outputs = weights["kernel"].shape
            conv: Any = {2: nn.Conv2d, 3: nn.Conv3d}[axes]
            return conv(
                inputs * layer.groups,
                outputs,
                tuple(sides),
                layer.strides,
                layer.pads(sides),
                groups=layer.groups,
                bias="bias" in weights,
            )


def _load(module: "nn.Module", weights: dict[str, np.ndarray]) -> None:
    import torch

    state = {TORCH_NAMES[name]: torch.from_numpy(w.copy()) for name, w in weights.items()}
    module.load_state_dict(module.state_dict() | state)


def _to_channels_first(kernel: np.ndarray, unflattened: Shape) -> np.ndarray:
    """A dense kernel for PyTorch: ``[inputs, outputs]`` to ``[outputs, inputs]``.

    If its inputs were flattened, they are reordered from ``H, W, C`` to ``C, H, W``.
    """
    if len(unflattened) > 1:
        channels, *sides = unflattened
        kernel = np.moveaxis(kernel.reshape(*sides, channels, -1), -2, 0)
        kernel = kernel.reshape(-1, kernel.shape[-1])
    return kernel.T
