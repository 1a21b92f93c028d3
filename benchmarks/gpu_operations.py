"""Operations that GPU programs compute in their own way: ``python -m benchmarks.gpu_operations``.

Question: how long do they take as JAX's own lowering computes them, and as `jaxcnn` does?

- The gradient of a max pool, and the pool with its gradient: `jaxcnn.ops.pool_lowering`.
- The gradient of a depthwise kernel as large as the images: `jaxcnn.ops.conv_lowering`.
- How many pixels are darker than each level, for `equalize`: `jaxcnn.data.tones`.

Both run in turn in one process, on the shapes of train steps: images in bfloat16, levels in int32.
Takes a minute on a GPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from rich.console import Console
from rich.table import Table

from benchmarks import command
from experiments.measure.noise import compare
from experiments.measure.timing import compile_program, time_interleaved
from jaxcnn import backend
from jaxcnn.data import tones
from jaxcnn.ops import NHWC
from jaxcnn.ops.conv_spec import Pads, Sizes
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.pooling_lowerings import reduce_max

ROUNDS = 15
NONE: Pads = ((0, 0), (0, 0))
ONE: Pads = ((1, 1), (1, 1))


@dataclass(frozen=True)
class Operation:
    """An operation and its arguments.

    Attributes:
      network: in whose train step it is.
      sizes: of the images, ``[N, H, W, C]``, and of the window.
      what: is computed.
      jax_own, ours: the two ways to compute it, functions of the arguments.
      arguments: arrays.
    """

    network: str
    sizes: tuple[Sizes, Sizes]
    what: str
    jax_own: Callable
    ours: Callable
    arguments: tuple[Array, ...]


# Networks, images [N, H, W, C], windows, strides and pads.
POOLS: tuple[tuple[str, Sizes, Sizes, Sizes, Pads], ...] = (
    ("speedrun_cnn", (2000, 31, 31, 64), (2, 2), (2, 2), NONE),
    ("speedrun_cnn", (2000, 15, 15, 256), (2, 2), (2, 2), NONE),
    ("speedrun_cnn", (2000, 7, 7, 256), (2, 2), (2, 2), NONE),
    ("speedrun_cnn", (2000, 3, 3, 256), (3, 3), (3, 3), NONE),
    ("resnet50", (256, 112, 112, 64), (3, 3), (2, 2), ONE),
    ("vgg16", (64, 224, 224, 64), (2, 2), (2, 2), NONE),
    ("googlenet", (64, 28, 28, 256), (3, 3), (1, 1), ONE),
)
# Networks, images and windows; the first for comparison, as its images are larger than its window.
DEPTHWISE: tuple[tuple[str, Sizes, Sizes], ...] = (
    ("convnext_tiny", (256, 14, 14, 384), (7, 7)),
    ("convnext_tiny", (256, 7, 7, 768), (7, 7)),
    ("convnext_tiny", (32, 7, 7, 768), (7, 7)),
)
EQUALIZED: Sizes = (256, 224, 224, 3)


def main() -> None:
    """Prints the medians of both, in microseconds, and their ratio."""
    command.refuse_options("benchmarks.gpu_operations")
    console, device = Console(), backend.select("auto")
    title = f"{device.devices[0].device_kind}, {ROUNDS} rounds in turn"
    columns = ("network", "images", "window", "what", "JAX's, µs", "ours, µs", "ours ÷ JAX's")
    table = Table(*columns, title=title)
    for operation in _operations():
        table.add_row(*_row(operation))
    console.print(table)


def _operations() -> Iterator[Operation]:
    """One by one, so that the arguments of one are in memory at a time."""
    for network, shape, window, strides, pads in POOLS:
        pool = partial(reduce_max, window=window, strides=strides, pads=pads)
        images = _normal(shape)
        arguments = images, _normal(jax.eval_shape(pool, images).shape, 1)
        for what, function in {"gradient": _gradient, "pool and gradient": _both}.items():
            ways = partial(function, pool), _marked(partial(function, pool))
            yield Operation(network, (shape, window), what, *ways, arguments)
    for network, shape, window in DEPTHWISE:
        images, kernel = _normal(shape), _normal((*window, 1, shape[-1]), 1)
        arguments = kernel, _normal(shape, 2)
        gradient = partial(_gradient, partial(_depthwise, images))
        what = "gradient of the kernel"
        yield Operation(network, (shape, window), what, gradient, _marked(gradient), arguments)
    levels = jax.random.randint(jax.random.key(0), EQUALIZED, 0, tones.LEVELS)
    counting, sorting = map(jax.vmap, (tones.below_by_counting, tones.below_by_sorting))
    sizes = (EQUALIZED, EQUALIZED[1:3])
    yield Operation("convnext_tiny", sizes, "darker pixels", counting, sorting, (levels,))


def _row(operation: Operation) -> tuple[str, ...]:
    ways = {"JAX's": operation.jax_own, "ours": operation.ours}
    programs = {name: compile_program(way, *operation.arguments).call for name, way in ways.items()}
    timings = time_interleaved(programs, ROUNDS)
    ratio = compare(timings["ours"].samples, timings["JAX's"].samples, paired=True)
    medians = (f"{timings[name].median * 1e6:,.0f}" for name in programs)
    sizes = ("×".join(map(str, size)) for size in operation.sizes)
    interval = f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    return (operation.network, *sizes, operation.what, *medians, interval)


def _normal(shape: Sizes, seed: int = 0) -> Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def _marked(function: Callable) -> Callable:
    """The same function of operations with our lowering."""

    def marked(*arguments: Array):
        with fast_on_cpu():
            return function(*arguments)

    return marked


def _depthwise(images: Array, kernel: Array) -> Array:
    channels = images.shape[-1]
    return lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=channels
    )


def _gradient(function: Callable, argument: Array, cotangent: Array) -> Array:
    return _both(function, argument, cotangent)[1]


def _both(function: Callable, argument: Array, cotangent: Array) -> tuple[Array, Array]:
    result, backward = jax.vjp(function, argument)
    return result, backward(cotangent)[0]


if __name__ == "__main__":
    command.run(main)
