"""Max pools and their gradients on an accelerator: ``python -m benchmarks.pool_gradients``.

Question: how long do the gradient of a max pool, and the pool with its gradient, take with JAX's
own lowering, and with that of `jaxcnn.ops.pool_lowering`? Both run in turn in one process, on
bfloat16 images of train steps. Takes a minute on a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table

from benchmarks import command
from experiments.measure.noise import compare
from experiments.measure.timing import compile_program, time_interleaved
from jaxcnn import backend
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.pooling_lowerings import Pads, Sizes, reduce_max

ROUNDS = 15
NONE: Pads = ((0, 0), (0, 0))


@dataclass(frozen=True)
class Pool:
    """A max pool of a network's train step; ``images`` is the shape ``[N, H, W, C]``."""

    network: str
    images: Sizes
    window: Sizes
    strides: Sizes
    pads: Pads = NONE


POOLS = (
    Pool("speedrun_cnn", (2000, 31, 31, 64), (2, 2), (2, 2)),
    Pool("speedrun_cnn", (2000, 15, 15, 256), (2, 2), (2, 2)),
    Pool("speedrun_cnn", (2000, 7, 7, 256), (2, 2), (2, 2)),
    Pool("speedrun_cnn", (2000, 3, 3, 256), (3, 3), (3, 3)),
    Pool("resnet50", (256, 112, 112, 64), (3, 3), (2, 2), ((1, 1), (1, 1))),
    Pool("vgg16", (64, 224, 224, 64), (2, 2), (2, 2)),
    Pool("googlenet", (64, 28, 28, 256), (3, 3), (1, 1), ((1, 1), (1, 1))),
)


def main() -> None:
    """Prints the medians of both lowerings, in microseconds, and their ratio."""
    command.refuse_options("benchmarks.pool_gradients")
    console, device = Console(), backend.select("auto")
    title = f"{device.devices[0].device_kind}, bfloat16, {ROUNDS} rounds in turn"
    columns = ("pool of", "images", "window", "what", "JAX's, µs", "ours, µs", "ours ÷ JAX's")
    table = Table(*columns, title=title)
    for pool in POOLS:
        for what, function in {"gradient": _gradient, "pool and gradient": _both}.items():
            table.add_row(*_row(pool, what, function))
    console.print(table)


def _row(pool: Pool, what: str, function: Callable) -> tuple[str, ...]:
    images = jax.random.normal(jax.random.key(0), pool.images, jnp.bfloat16)
    result = jax.eval_shape(lambda images: _largest(images, pool), images)
    cotangent = jax.random.normal(jax.random.key(1), result.shape, jnp.bfloat16)

    def ours(images: Array, cotangent: Array):
        with fast_on_cpu():
            return function(images, cotangent, pool)

    def jax_own(images: Array, cotangent: Array):
        return function(images, cotangent, pool)

    programs = {
        name: compile_program(program, images, cotangent).call
        for name, program in {"JAX's": jax_own, "ours": ours}.items()
    }
    timings = time_interleaved(programs, ROUNDS)
    ratio = compare(timings["ours"].samples, timings["JAX's"].samples, paired=True)
    medians = (f"{timings[name].median * 1e6:,.0f}" for name in programs)
    sizes = ("×".join(map(str, pool.images)), "×".join(map(str, pool.window)))
    interval = f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    return (pool.network, *sizes, what, *medians, interval)


def _largest(images: Array, pool: Pool) -> Array:
    return reduce_max(images, pool.window, pool.strides, pool.pads)


def _gradient(images: Array, cotangent: Array, pool: Pool) -> Array:
    return _both(images, cotangent, pool)[1]


def _both(images: Array, cotangent: Array, pool: Pool) -> tuple[Array, Array]:
    result, backward = jax.vjp(lambda images: _largest(images, pool), images)
    return result, backward(cotangent)[0]


if __name__ == "__main__":
    command.run(main)
