"""What the CPU lowerings and the compiler option are worth: ``python -m benchmarks.lowerings``.

Question: how long does a train step of `mnist_cnn`, batch 128, take with JAX's convolution
gradients and pooling, and with those of `jaxcnn`; called once, and in the body of a loop; with and
without the compiler option? All variants run in turn in one process.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from jax import Array, lax
from jax.stages import Compiled

from benchmarks import command
from benchmarks.samples import Call, results_folder, sample, write
from experiments.analysis.benchmark_tables import lowerings_table
from experiments.records import Record
from jaxcnn import backend, models, training
from jaxcnn.ops.pooling_lowerings import reduce_max
from jaxcnn.parallel.options import OPTIONS

BATCH_SIZE = 128
LOOP_STEPS = 2  # train steps per call of a looped program
ROUNDS = 5


@dataclass(frozen=True)
class Variant:
    """A way to run the train step.

    Attributes:
      lowering: ``jax`` or ``jaxcnn``.
      in_loop: whether a call runs `LOOP_STEPS` steps in a loop, instead of one.
      has_option: whether the program is compiled with the compiler option.
    """

    lowering: str
    in_loop: bool
    has_option: bool

    @property
    def steps_per_call(self) -> int:
        return LOOP_STEPS if self.in_loop else 1


VARIANTS = [
    Variant(*values)
    for values in itertools.product(("jax", "jaxcnn"), (False, True), (False, True))
]


def reduce_window_max_pool(images: Array) -> Array:
    """Max pooling of 2 x 2 windows by XLA's ``reduce_window``."""
    return reduce_max(images, window=(2, 2), strides=(2, 2), pads=((0, 0), (0, 0)))


def create_training(lowering: str):
    """A training state and its step; ``jax`` replaces the operations of `jaxcnn` by JAX's."""
    model: Any = models.build("mnist_cnn")
    if lowering == "jax":
        model.conv1.conv_general_dilated = lax.conv_general_dilated
        model.conv2.conv_general_dilated = lax.conv_general_dilated
        model.pool1 = model.pool2 = reduce_window_max_pool
    return training.create(model, optax.adam(1e-3))


def compile_variant(variant: Variant, batch: dict[str, Array]) -> tuple[Compiled, object]:
    """The compiled program of a state and a batch, and its first state."""
    state, step = create_training(variant.lowering)

    def run(state, batch):
        if not variant.in_loop:
            return step(state, batch)[0]
        return lax.fori_loop(0, LOOP_STEPS, lambda i, state: step(state, batch)[0], state)

    lowered = jax.jit(run, donate_argnums=0).lower(state, batch)
    options = OPTIONS["cpu"] if variant.has_option else None
    return lowered.compile(compiler_options=options), state


def random_batch() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH_SIZE, 28, 28, 1), np.uint8)
    return jax.device_put({"image": images, "label": rng.integers(0, 10, BATCH_SIZE, np.int32)})


def calls(batch: dict[str, Array]) -> dict[Variant, Call]:
    """A call of each variant, which keeps its state."""

    def call_of(variant: Variant) -> Call:
        program, state = compile_variant(variant, batch)
        current = [state]

        def call() -> None:
            current[0] = jax.block_until_ready(program(current[0], batch))

        return call

    return {variant: call_of(variant) for variant in VARIANTS}


def main() -> None:
    """Writes a record for each row, and prints the table."""
    results = results_folder("benchmarks.lowerings")
    device = backend.select("cpu")
    times = sample(calls(random_batch()), ROUNDS)
    rows: list[Record] = []
    for in_loop, has_option in itertools.product((False, True), (False, True)):
        variants = {
            lowering: Variant(lowering, in_loop, has_option) for lowering in ("jax", "jaxcnn")
        }
        samples = {
            lowering: [seconds / variant.steps_per_call for seconds in times[variant]]
            for lowering, variant in variants.items()
        }
        settings = {
            "called": "in a loop" if in_loop else "once",
            "compiler_option": "on" if has_option else "off",
        }
        rows.append(write(results, "lowerings", device, len(rows), settings, samples))
    print(lowerings_table(rows))


if __name__ == "__main__":
    command.run(main)
