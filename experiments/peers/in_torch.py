"""The peer in PyTorch: its own modules and fused optimizers, eager or compiled."""

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from experiments.peers.task import Task
from experiments.peers.torch_network import NetworkBuilder

if TYPE_CHECKING:
    import torch
    from torch import nn


class Torch:
    """A network in PyTorch.

    Args:
      channels_last: the memory format of images and kernels.
      compiled: whether it is compiled with `torch.compile`, with default options.
      frozen: whether inference is compiled with its weights as constants, which it may then lay
        out anew and fold; such a network cannot be trained.
    """

    def __init__(
        self,
        task: Task,
        *,
        channels_last: bool = False,
        compiled: bool = False,
        frozen: bool = False,
    ):
        import torch

        torch.set_num_threads(task.threads)
        if frozen:
            import torch._inductor.config

            torch._inductor.config.freezing = True
        self.torch, self.frozen = torch, frozen
        self.in_bfloat16 = task.precision == "bfloat16"
        self.device = "cuda" if task.platform == "gpu" else "cpu"
        if self.device == "cuda":  # as JAX does
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        memory_format = _memory_format(task, channels_last)
        builder = NetworkBuilder(task)
        self.module = builder.network().to(self.device, memory_format=memory_format)
        self.optimizer = _optimizer(task, builder.modules)
        self.forward = torch.compile(self.module) if compiled or frozen else self.module
        images = torch.from_numpy(np.moveaxis(task.images, -1, 1).copy())
        self.images = images.contiguous(memory_format=memory_format).to(self.device)
        labels = torch.from_numpy(task.labels.astype(np.float32 if task.binary else np.int64))
        self.labels = labels.to(self.device)
        self.binary = task.binary

    def logits(self) -> np.ndarray:
        """The logits of the batch in evaluation, ``f32[N, outputs]``."""
        self.module.eval()
        with self._inference_mode():
            return self._logits().float().cpu().numpy()

    def losses(self, steps: int) -> list[float]:
        """Takes steps; returns the cross-entropy of each, before its update."""
        self.module.train()
        return [self._step().item() for _ in range(steps)]

    def train(self, steps: int) -> None:
        """Takes steps and waits for them."""
        self.module.train()
        for _ in range(steps):
            self._step()
        self._wait()

    def device_memory_peak(self) -> int:
        """Peak bytes of a train step on a GPU."""
        self.torch.cuda.reset_peak_memory_stats()
        self.train(1)
        return self.torch.cuda.max_memory_allocated()

    def infer(self, calls: int) -> None:
        """Makes forward passes and waits for them."""
        self.module.eval()
        with self._inference_mode():
            for _ in range(calls):
                self._logits()
        self._wait()

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _logits(self) -> "torch.Tensor":
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.in_bfloat16):
            return self.forward(self.images)

    def _inference_mode(self) -> contextlib.AbstractContextManager:
        """The fastest context without gradients; freezing requires `no_grad`."""
        return self.torch.no_grad() if self.frozen else self.torch.inference_mode()

    def _step(self) -> "torch.Tensor":
        F = self.torch.nn.functional
        self.optimizer.zero_grad()
        logits = self._logits().float()
        if self.binary:
            loss = F.binary_cross_entropy_with_logits(logits[:, 0], self.labels)
        else:
            loss = F.cross_entropy(logits, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _memory_format(task: Task, channels_last: bool) -> "torch.memory_format":
    import torch

    if not channels_last:
        return torch.contiguous_format
    return torch.channels_last if task.images.ndim == 4 else torch.channels_last_3d


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
