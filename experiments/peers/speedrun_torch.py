"""The recipe of the study `speedrun` in PyTorch, written from the paper.

``python -m experiments.peers.speedrun_torch FOLDER`` reads ``task.json`` (a `SpeedrunTask`) and
``data.npz`` from a folder, trains, and prints one line of JSON.

Jordan 2024, *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, arXiv 2404.00498. What differs is
listed at the study.
"""

import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import jaxcnn
from experiments.peers.speedrun_task import SpeedrunTask

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}
CALIBRATION_STEPS = 3  # of each variant, of which the fastest trains
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Network(nn.Module):
    """The network of `jaxcnn.models.speedrun`, with a fixed whitening kernel ``[24, 3, 2, 2]``."""

    def __init__(self, whitening: Tensor, widths: tuple[int, ...], classes: int):
        super().__init__()
        self.register_buffer("whitening", whitening)
        channels = len(whitening)
        self.blocks = nn.ModuleList()
        for width in widths:
            self.blocks.append(_block(channels, width))
            channels = width
        self.out = nn.Linear(channels, classes, bias=False)
        nn.init.normal_(self.out.weight)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.gelu(functional.conv2d(images, self.whitening))
        for block in self.blocks:
            x = block(x)
        features = x.amax((2, 3))
        return self.out(features) / features.shape[-1]


def _block(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        *(_conv(inputs, width), nn.MaxPool2d(2), _norm(width), nn.GELU()),
        *(_conv(width, width), _norm(width), nn.GELU()),
    )


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(conv.weight.data[: min(inputs, outputs)])
    return conv


def _norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)  # of the new statistics
    norm.weight.requires_grad = False
    return norm


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; each kernel has the norm of its number of filters."""

    def __init__(self, kernels: list[Tensor], rate: float, momentum: float, iterations: int):
        super().__init__(kernels, {"lr": rate, "momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta = group["momentum"]
            for kernel in group["params"]:
                state = self.state[kernel]
                count = state["count"] = state.get("count", 0) + 1
                mean = state.setdefault("mean", torch.zeros_like(kernel))
                mean.lerp_(kernel.grad, 1 - beta)
                # Dozat 2016, *Incorporating Nesterov Momentum into Adam*
                ahead = beta * mean / (1 - beta ** (count + 1))
                ahead += (1 - beta) * kernel.grad / (1 - beta**count)
                update = orthogonalize(ahead.reshape(len(ahead), -1), group["iterations"])
                kernel.mul_(len(kernel) ** 0.5 / kernel.norm())
                kernel.sub_(update.view_as(kernel), alpha=group["lr"])


def orthogonalize(matrix: Tensor, iterations: int) -> Tensor:
    """The nearest matrix with equal singular values, roughly, by a Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    x = matrix / (matrix.norm() + 1e-8)
    is_tall = len(x) > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if is_tall else x


class Training:
    """A network, its optimizers and the data, on a device.

    Args:
      task: the recipe.
      data: ``train_images`` u8 ``[N, H, W, C]``, ``train_labels``, ``whitening``
        ``f32[2, 2, C, D]``, and ``mean`` and ``std`` of pixels in 0 … 1.
      memory_format: a key of `MEMORY_FORMATS`.
      compiled: whether the network is compiled with `torch.compile`.
    """

    def __init__(self, task: SpeedrunTask, data: Any, memory_format: str, compiled: bool):
        torch.manual_seed(task.seed)
        self.task, self.device = task, torch.device(task.device)
        self.format = MEMORY_FORMATS[memory_format]
        whitening = torch.from_numpy(data["whitening"]).permute(3, 2, 0, 1).contiguous()
        classes = int(data["train_labels"].max()) + 1
        network = Network(whitening, task.widths, classes)
        self.network = network.to(self.device, memory_format=self.format)
        self.forward = torch.compile(self.network) if compiled else self.network
        self.mean, self.std = (self._pixels(data[name]) for name in ("mean", "std"))
        self.images = self._normalize(data["train_images"])
        self.labels = torch.from_numpy(data["train_labels"]).long().to(self.device)
        self.optimizers = self._optimizers()
        self.flip_first = torch.rand(len(self.images), device=self.device) < 0.5

    def _pixels(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device).view(1, -1, 1, 1)

    def _normalize(self, images: np.ndarray) -> Tensor:
        pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2)
        pixels = (pixels.float() / 255 - self.mean) / self.std
        return pixels.to(memory_format=self.format)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        task = self.task
        kernels = [p for p in self.network.blocks.parameters() if p.ndim == 4]
        biases = [p for p in self.network.blocks.parameters() if p.ndim == 1 and p.requires_grad]
        head = list(self.network.out.parameters())
        groups = [
            {"params": params, "lr": rate, "weight_decay": task.weight_decay / rate}
            for params, rate in ((biases, task.bias_rate), (head, task.head_rate))
        ]
        sgd = torch.optim.SGD(groups, momentum=task.momentum, nesterov=True, fused=True)
        muon = Muon(kernels, task.learning_rate, task.muon_momentum, task.newton_schulz_steps)
        for optimizer in (sgd, muon):
            for group in optimizer.param_groups:
                group["initial_rate"] = group["lr"]
        return [sgd, muon]

    def warm_up(self, steps: int) -> None:
        """Takes steps and waits for them; the network is then as it was before."""
        weights = copy.deepcopy(self.network.state_dict())
        self.run(1, steps)
        self.network.load_state_dict(weights)
        self.optimizers = self._optimizers()
        self.synchronize()

    def run(self, epochs: int, max_steps: int | None = None) -> tuple[int, float]:
        """Trains for a number of epochs, or fewer steps; returns the steps and the last loss."""
        size, step = self.task.batch_size, 0
        per_epoch = len(self.labels) // size
        steps = min(epochs * per_epoch, max_steps or epochs * per_epoch)
        self.network.train()
        for epoch in range(epochs):
            images = self._augment(epoch)
            order = torch.randperm(len(images), device=self.device)
            for first in range(0, per_epoch * size, size):
                if step == steps:
                    break
                rows = order[first : first + size]
                batch = images[rows].contiguous(memory_format=self.format)
                loss = self._take_step(batch, self.labels[rows], 1 - step / (epochs * per_epoch))
                step += 1
        return step, loss.item()

    def _augment(self, epoch: int) -> Tensor:
        """Flips an image in every second epoch, and shifts it by up to `max_shift` pixels."""
        flip = self.flip_first ^ (epoch % 2 == 1)
        images = torch.where(flip.view(-1, 1, 1, 1), self.images.flip(-1), self.images)
        margin = self.task.max_shift
        padded = functional.pad(images, (margin,) * 4, mode="reflect")
        side, width = images.shape[2:]
        shifts = torch.randint(0, 2 * margin + 1, (2, len(images)), device=self.device)
        result = torch.empty_like(images)
        for down in range(2 * margin + 1):
            for right in range(2 * margin + 1):
                rows = (shifts[0] == down) & (shifts[1] == right)
                result[rows] = padded[rows, :, down : down + side, right : right + width]
        return result

    def _take_step(self, images: Tensor, labels: Tensor, rate_factor: float) -> Tensor:
        loss = functional.cross_entropy(
            self.forward(images), labels, label_smoothing=self.task.label_smoothing
        )
        self.network.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_rate"] * rate_factor
            optimizer.step()
        return loss.detach()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @torch.inference_mode()
    def accuracies(self, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The share of correct predictions, of images alone and by six views of each."""
        self.network.eval()
        truth = torch.from_numpy(labels).long().to(self.device)
        correct = {"test_accuracy": 0, "test_accuracy_multicrop": 0}
        for first in range(0, len(images), 1000):
            batch = self._normalize(images[first : first + 1000])
            plain = self.network(batch)
            padded = functional.pad(batch, (1,) * 4, mode="reflect")
            shifted = padded[..., :-2, :-2], padded[..., 2:, 2:]
            views = 2 * self._mirrored(batch) + sum(self._mirrored(each) for each in shifted)
            for name, logits in zip(correct, (plain, views), strict=True):
                correct[name] += int((logits.argmax(1) == truth[first : first + 1000]).sum())
        return {name: count / len(images) for name, count in correct.items()}

    def _mirrored(self, images: Tensor) -> Tensor:
        return self.network(images) + self.network(images.flip(-1))


def fastest_training(task: SpeedrunTask, data: Any) -> tuple[Training, str]:
    """The variant of PyTorch whose steps take the least time, warmed up, and its name."""
    trainings: dict[str, Training] = {}
    times: dict[str, float] = {}
    for memory_format in MEMORY_FORMATS:
        for compiled in (False, True):
            name = f"{memory_format}, {'compiled' if compiled else 'eager'}"
            training = trainings[name] = Training(task, data, memory_format, compiled)
            training.warm_up(1)  # compiles
            start = time.perf_counter()
            training.warm_up(CALIBRATION_STEPS)
            times[name] = time.perf_counter() - start
    best = min(times, key=lambda name: times[name])
    return trainings[best], best


def main(folder: str) -> None:
    task = SpeedrunTask.from_json(json.loads((Path(folder) / "task.json").read_text()))
    arrays = np.load(Path(folder) / "data.npz", allow_pickle=False)
    data = {name: arrays[name] for name in arrays.files}
    torch.set_num_threads(task.threads)
    training, variant = fastest_training(task, data)
    start = time.perf_counter()
    steps, loss = training.run(task.epochs)
    training.synchronize()
    seconds = time.perf_counter() - start
    accuracies = training.accuracies(data["test_images"], data["test_labels"])
    result = {"training_time": seconds, "steps": steps, "loss": loss, "variant": variant}
    print(json.dumps(result | accuracies))


if __name__ == "__main__":
    jaxcnn.keep_freed_memory()
    main(sys.argv[1])
