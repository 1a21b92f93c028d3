"""Train steps of twenty networks on this processor, to be predicted and then run."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from experiments.config import RunConfig
from experiments.preflight.operation import Operation
from experiments.preflight.operations import operations
from experiments.workloads import network, synthetic_step
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import backend, models, parallel, training
from jaxcnn.errors import require_known

# Batch and side of the images: steps of a tenth of a second to a few seconds on two cores.
NETWORKS = {
    "mlp": (8192, 28),
    "lenet5": (2048, 32),
    "lenet_like": (2048, 32),
    "mnist_cnn": (1024, 28),
    "deep_mnist": (512, 28),
    "cifar_tutorial": (256, 24),
    "speedrun_cnn": (64, 32),
    "cats_vs_dogs": (4, 256),
    "alexnet": (16, 224),
    "vgg11": (4, 224),
    "vgg16": (4, 224),
    "squeezenet1_1": (16, 224),
    "googlenet": (8, 224),
    "resnet18": (8, 224),
    "resnet34": (8, 224),
    "resnet50": (4, 224),
    "resnet18_cifar": (64, 32),
    "densenet121": (4, 224),
    "mobilenet_v2": (8, 224),
    "resnext50_32x4d": (4, 224),
}


@dataclass
class PlacedStep:
    """A train step before it is run.

    Attributes:
      model: its network.
      items: its kernels.
      step: jitted.
      state, batch: to run it with; the state is given away to the step.
    """

    model: str
    items: tuple[Operation, ...]
    step: jax.stages.Wrapped
    state: Any
    batch: Any

    def compile(self) -> jax.stages.Compiled:
        """The compiled step."""
        return self.step.lower(self.state, self.batch).compile()


def selected(names: str) -> list[str]:
    """Networks by their comma-separated names, or ``all``.

    Raises:
      InputError: an unknown one.
    """
    models_ = list(NETWORKS) if names == "all" else names.split(",")
    for name in models_:
        require_known("model", name, NETWORKS)
    return models_


def settings(model: str) -> dict[str, Any]:
    """What a row of a benchmark says of its step."""
    batch_size, image_size = NETWORKS[model]
    return {"model": model, "batch": batch_size, "image_size": image_size}


def build(model: str, device: backend.Backend) -> PlacedStep:
    """A float32 train step with momentum on images of noise."""
    batch_size, image_size = NETWORKS[model]
    config = RunConfig(model=model, batch_size=batch_size, image_size=image_size)
    config = synthetic_step.fill_defaults(config)
    classes = models.spec(model).num_classes or network.NUM_CLASSES
    names = tuple(map(str, range(classes)))
    preprocessing = Preprocessing(image_size, image_size, network.channels(config), names)
    shape = preprocessing.network_shape
    optimizer = training.optimizer("momentum", 0.01, "constant", steps=1, steps_per_epoch=1)
    strategy = parallel.strategy("jit", device.devices)
    state, step = strategy.create(
        lambda: training.create(
            models.build(model, num_classes=classes, input_shape=shape),
            optimizer,
            preprocess=preprocessing.make_preprocess(),
        )
    )
    batch = synthetic_step.noise_batch(batch_size, shape, classes)
    items = operations(step, state, batch, platform="cpu")
    strategy = strategy.for_step(step, state, batch)
    placed = strategy.place(state), strategy.place_batch(batch)
    return PlacedStep(model, items, strategy.train_program(step), *placed)


def in_own_process(function: str, model: str, environment: Mapping[str, str] | None = None) -> Any:
    """What a function returns for a network in a new process, where no other network was built.

    Args:
      function: as ``module.name``, of a module of `benchmarks`; returns what JSON can hold.
      model: its argument.
      environment: variables of that process beside those of this one.
    """
    module, name = function.split(".")
    code = (
        f"import json; from benchmarks import {module}; "
        f"print(json.dumps({module}.{name}({model!r})))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return json.loads(output.splitlines()[-1])
