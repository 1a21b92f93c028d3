"""What the CPU lowerings and the compiler option are worth, both sides in one run: ``python -m benchmarks.lowerings``.

Question: how long does a train step of `mnist_cnn`, batch 128, take with JAX's own convolution gradients and pooling, and with
ours; called once, and in the body of a loop; without and with the compiler option? The sides are timed in turn.
"""

import itertools
import time

import jax
import numpy as np
import optax
from jax import lax
from rich.console import Console
from rich.table import Table

from jaxcnn import backend, models, training
from jaxcnn.ops import pooling
from jaxcnn.parallel.options import OPTIONS

BATCH, LOOP, ROUNDS = 128, 2, 5


def native_max_pool(images):
    return pooling._max_native(images, window=(2, 2), strides=(2, 2), padding="VALID")


def created(native: bool):
    """A state and a step; the native one is traced with JAX's own operations in the place of ours."""
    model = models.build("mnist_cnn")
    if native:
        model.conv1.conv_general_dilated = model.conv2.conv_general_dilated = (
            lax.conv_general_dilated
        )
        model.pool1 = model.pool2 = native_max_pool
    return training.create(model, optax.adam(1e-3))


def compiled(native: bool, looped: bool, option: bool, batch):
    """The program, its first state, and the steps that a call takes."""
    state, step = created(native)

    def loop(state, batch):
        return lax.fori_loop(0, LOOP, lambda i, state: step(state, batch)[0], state)

    options = OPTIONS["cpu"] if option else None
    function = jax.jit(
        loop if looped else lambda state, batch: step(state, batch)[0], donate_argnums=0
    )
    return (
        function.lower(state, batch).compile(compiler_options=options),
        state,
        LOOP if looped else 1,
    )


def main() -> None:
    """Prints milliseconds a step, medians over rounds."""
    backend.select("cpu")
    rng = np.random.default_rng(0)
    batch = jax.device_put(
        {
            "image": rng.integers(0, 256, (BATCH, 28, 28, 1), np.uint8),
            "label": rng.integers(0, 10, BATCH, np.int32),
        }
    )
    cases = list(itertools.product((True, False), (False, True), (False, True)))
    programs = {case: compiled(*case, batch) for case in cases}
    states = {case: state for case, (_, state, _) in programs.items()}
    times: dict[tuple, list[float]] = {case: [] for case in cases}
    for round_, case in itertools.product(range(ROUNDS + 1), cases):
        program, _, steps = programs[case]
        start = time.perf_counter()
        states[case] = jax.block_until_ready(program(states[case], batch))
        if round_:
            times[case].append((time.perf_counter() - start) / steps)
    table = Table("called", "compiler option", "JAX's own, ms", "ours, ms", "ratio")
    for looped, option in itertools.product((False, True), (False, True)):
        theirs, ours = (np.array(times[native, looped, option]) * 1e3 for native in (True, False))
        names = ("in a loop" if looped else "once", "on" if option else "off")
        table.add_row(
            *names,
            f"{np.median(theirs):.1f}",
            f"{np.median(ours):.1f}",
            f"{np.median(ours / theirs):.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
