"""Predicts train steps on this processor, then runs them: ``python -m benchmarks.estimates``.

Question: how far is the sum of single kernels from the time of the whole step? Twenty networks are
predicted before any is run: from their kernels, each timed alone, and once more from the kernels of
the other networks only, the most similar of which stand for those that the network has.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Any

import jax

import jaxcnn
from benchmarks.cpu_kernels import KernelTimes, measure_rates, signature
from benchmarks.samples import sample, write
from experiments.analysis.benchmark_tables import estimates_table
from experiments.cli import parse_options
from experiments.config import RunConfig
from experiments.preflight.operations import Operation, operations
from experiments.records import Record
from experiments.workloads import network, synthetic_step
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import backend, models, parallel, training
from jaxcnn.errors import require_known

ROUNDS = 9
# Batch and side of the images: steps of a tenth of a second to a few seconds on two cores.
NETWORKS = {
    "mlp": (256, 28),
    "lenet5": (256, 32),
    "lenet_like": (256, 32),
    "mnist_cnn": (128, 28),
    "deep_mnist": (64, 28),
    "cifar_tutorial": (128, 24),
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


@dataclass(frozen=True)
class EstimatesConfig:
    """Predicts train steps on this processor, then runs them."""

    models: str = "all"
    """Comma-separated networks, or all."""
    results: str = "results"
    """The results folder."""


@dataclass
class Prediction:
    """A train step before it is run.

    Attributes:
      model: its network.
      items: its kernels.
      step, state, batch: to run it with.
    """

    model: str
    items: tuple[Operation, ...]
    step: Any
    state: Any
    batch: Any

    @property
    def signatures(self) -> set[str]:
        return {signature(item.equation) for item in self.items if item.equation is not None}


def build(model: str, device: backend.Backend) -> Prediction:
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
    return Prediction(model, items, strategy.compile(step), *placed)


def run(prediction: Prediction) -> list[float]:
    """Seconds of each step."""
    state = [prediction.state]
    program = prediction.step.lower(prediction.state, prediction.batch).compile()

    def call() -> None:
        state[0] = jax.block_until_ready(program(state[0], prediction.batch))[0]

    return sample({"measured": call}, ROUNDS)["measured"]


def main() -> None:
    """Writes a record for each network, and prints the table."""
    config = parse_options(EstimatesConfig, "benchmarks.estimates", None)
    names = list(NETWORKS) if config.models == "all" else config.models.split(",")
    for name in names:
        require_known("model", name, NETWORKS)
    device = backend.select("cpu")
    jaxcnn.keep_freed_memory()
    predictions = [build(name, device) for name in names]
    kernels = KernelTimes(measure_rates())
    predicted = {p.model: math.fsum(map(kernels.seconds, p.items)) for p in predictions}
    rows: list[Record] = []
    for prediction in predictions:
        own = prediction.signatures
        others = math.fsum(kernels.interpolated(item, own) for item in prediction.items)
        samples = {
            "predicted": [predicted[prediction.model]],
            "predicted_from_others": [others],
            "measured": run(prediction),
        }
        batch_size, image_size = NETWORKS[prediction.model]
        settings = {"model": prediction.model, "batch": batch_size, "image_size": image_size}
        rows.append(write(config.results, "estimates", device, len(rows), settings, samples))
        print(estimates_table(rows[-1:]).splitlines()[-1], flush=True)
    print(estimates_table(rows))
    for side in ("predicted", "predicted_from_others"):
        errors = [abs(_error(row, side)) for row in rows]
        print(
            f"{side.replace('_', ' ')}: median error {statistics.median(errors):.0%}, "
            f"largest {max(errors):.0%}"
        )


def _error(record: Record, side: str) -> float:
    (predicted,) = record.samples[side]
    return predicted / min(record.samples["measured"]) - 1


if __name__ == "__main__":
    main()
