"""What the CPU kernels are worth for plain Flax: ``python -m benchmarks.cpu_layers``.

Questions, each answered by a row or more:

- the depthwise convolution of jax issue 23713, and the transposed convolution over three axes of
  jax issue 31662, forward and with gradients: how long do they take before and after, and in
  PyTorch (where it is installed)?
- a user's own network of plain `nnx.Conv` layers: what does `jaxcnn.accelerate` save?
- `bfloat16`: does a train step take longer than in float32?

"Before" is Flax without `accelerate`. All sides of a row run in turn in one process, on the same
number of threads, with freed memory kept.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads of PyTorch must not spin

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.console import Console
from rich.table import Table

import jaxcnn
from jaxcnn import backend, models, training

ROUNDS = 11
SLOW = 5_000  # milliseconds
HALF_PRECISION_CASES = (("mnist_cnn", 128), ("cifar_tutorial", 128), ("resnet18_cifar", 32))

Call = Callable[[], object]  # returns when the result is there


def median_milliseconds(calls: dict[str, Call]) -> dict[str, float]:
    """Of each call, over rounds in which all are called in turn; two first rounds do not count.

    A call that takes longer than `SLOW` is called once.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 2):
        for name, call in calls.items():
            if times[name] and times[name][0] > SLOW:
                continue
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(values[2:] or values)) for name, values in times.items()}


def layer_calls(create: Callable[[nnx.Rngs], nnx.Module], images: jax.Array) -> dict[str, Call]:
    """The layer as it is and accelerated: forward, and with the gradients of weights and images."""
    calls: dict[str, Call] = {}
    for name in ("before", "after"):
        layer = create(nnx.Rngs(0))
        if name == "after":
            jaxcnn.accelerate(layer)
        graph, state = nnx.split(layer)

        def forward(state, images, graph=graph):
            return nnx.merge(graph, state)(images)

        def loss(state, images, forward=forward):
            return (forward(state, images).astype(jnp.float32) ** 2).mean()

        for what, function in (("forward", forward), ("gradients", jax.grad(loss, (0, 1)))):
            program = jax.jit(function).lower(state, images).compile()
            calls[f"{what} {name}"] = _blocking(program, state, images)
    return calls


def torch_layer_calls(create: Callable[[Any], Any], images: jax.Array) -> dict[str, Call]:
    """The same of a PyTorch layer, in both of its memory formats; nothing without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    axes = images.ndim - 2
    formats = {
        "channels first": torch.contiguous_format,
        "channels last": {2: torch.channels_last, 3: torch.channels_last_3d}[axes],
    }
    array = np.moveaxis(np.asarray(images, np.float32), -1, 1)
    dtype = torch.bfloat16 if images.dtype == jnp.bfloat16 else torch.float32
    calls: dict[str, Call] = {}
    for name, memory_format in formats.items():
        layer = create(torch).to(dtype=dtype, memory_format=memory_format)
        tensor = torch.from_numpy(array.copy()).to(dtype=dtype, memory_format=memory_format)
        tensor.requires_grad_()

        def forward(layer=layer, tensor=tensor):
            with torch.inference_mode():
                layer(tensor)

        def gradients(layer=layer, tensor=tensor):
            layer.zero_grad()
            tensor.grad = None
            (layer(tensor).float() ** 2).mean().backward()

        calls |= {f"forward {name}": forward, f"gradients {name}": gradients}
    return calls


def depthwise(table: Table) -> None:
    """Jax issue 23713: 256 channels, 124 x 124 pixels, a batch of one, 3 x 3 taps."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 124, 124, 256)), jnp.float32)
    calls = layer_calls(
        lambda rngs: nnx.Conv(256, 256, (3, 3), feature_group_count=256, rngs=rngs), images
    )
    calls |= torch_layer_calls(
        lambda torch: torch.nn.Conv2d(256, 256, 3, padding=1, groups=256), images
    )
    add_rows(table, "depthwise, jax issue 23713", calls)


def transposed(table: Table, dtype: jnp.dtype) -> None:
    """Jax issue 31662: 64 channels to one, 64 x 64 x 32 pixels, 3 x 3 x 3 taps, stride 2."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 64, 64, 32, 64)), dtype)
    calls = layer_calls(
        lambda rngs: nnx.ConvTranspose(
            64, 1, (3, 3, 3), (2, 2, 2), dtype=dtype, param_dtype=dtype, rngs=rngs
        ),
        images,
    )
    calls |= torch_layer_calls(
        lambda torch: torch.nn.ConvTranspose3d(64, 1, 3, 2, padding=1, output_padding=1), images
    )
    add_rows(table, f"3-D transposed, {dtype.__name__}, jax issue 31662", calls)


class OwnNetwork(nnx.Module):
    """A network as users write it, of Flax's layers alone."""

    def __init__(self, rngs: nnx.Rngs):
        self.stem = nnx.Conv(3, 32, (3, 3), strides=2, use_bias=False, rngs=rngs)
        self.stem_norm = nnx.BatchNorm(32, rngs=rngs)
        self.depthwise = nnx.Conv(32, 32, (5, 5), feature_group_count=32, rngs=rngs)
        self.expand = nnx.Conv(32, 128, (1, 1), rngs=rngs)
        self.grouped = nnx.Conv(128, 128, (3, 3), feature_group_count=4, rngs=rngs)
        self.norm = nnx.BatchNorm(128, rngs=rngs)
        self.reduce = nnx.Conv(128, 64, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem_norm(self.stem(x)))
        x = nnx.silu(self.expand(self.depthwise(x)))
        x = nnx.relu(self.norm(self.grouped(x)))
        return self.out(nnx.relu(self.reduce(x)).mean((1, 2)))


def own_network(table: Table) -> None:
    """A train step of `OwnNetwork`, 64 x 64 pixels, a batch of 32."""
    rng = np.random.default_rng(0)
    batch = {
        "image": jnp.asarray(rng.normal(size=(32, 64, 64, 3)), jnp.float32),
        "label": jnp.asarray(rng.integers(0, 10, 32), jnp.int32),
    }
    calls = {
        f"train step {name}": train_step_call(OwnNetwork(nnx.Rngs(0)), batch, accelerate=accelerate)
        for name, accelerate in (("before", False), ("after", True))
    }
    add_rows(table, "a network of nnx.Conv and nnx.BatchNorm", calls)


def half_precision(table: Table) -> None:
    """A train step in `bfloat16` beside float32."""
    rng = np.random.default_rng(0)
    for name, batch_size in HALF_PRECISION_CASES:
        shape = (batch_size, *models.spec(name).input_shape)
        batch = {
            "image": jnp.asarray(rng.integers(0, 256, shape), jnp.uint8),
            "label": jnp.asarray(rng.integers(0, 10, batch_size), jnp.int32),
        }
        calls = {
            dtype: train_step_call(models.build(name), batch, precision=dtype)
            for dtype in ("float32", "bfloat16")
        }
        times = median_milliseconds(calls)
        ratio = times["bfloat16"] / times["float32"]
        table.add_row(name, *(f"{times[dtype]:.1f}" for dtype in calls), f"{ratio:.2f}")


def train_step_call(model: nnx.Module, batch: dict[str, jax.Array], **options: Any) -> Call:
    state, step = training.create(model, optax.sgd(0.01, momentum=0.9), **options)
    program = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    current = [state]

    def call() -> None:
        current[0] = jax.block_until_ready(program(current[0], batch)[0])

    return call


def add_rows(table: Table, title: str, calls: dict[str, Call]) -> None:
    """A row for each kind of call: before, after, and the best of PyTorch's."""
    times = median_milliseconds(calls)
    for what in dict.fromkeys(name.removesuffix(" before") for name in times if "before" in name):
        before, after = times[f"{what} before"], times[f"{what} after"]
        peers = [
            value for name, value in times.items() if name.startswith(what) and "channels" in name
        ]
        of_torch = [f"{min(peers):.2f}", f"{after / min(peers):.2f}"] if peers else ["", ""]
        table.add_row(
            title, what, f"{before:.2f}", f"{after:.2f}", f"{before / after:.1f}", *of_torch
        )


def _blocking(program: Callable[..., Any], *arguments: Any) -> Call:
    return lambda: jax.block_until_ready(program(*arguments))


def main() -> None:
    """Prints two tables of medians."""
    jaxcnn.keep_freed_memory()
    backend.select("cpu")
    layers = Table(
        "what", "call", "before, ms", "after, ms", "speed-up", "PyTorch, ms", "after ÷ PyTorch"
    )
    depthwise(layers)
    transposed(layers, jnp.float32)
    transposed(layers, jnp.bfloat16)
    own_network(layers)
    half = Table("train step", "float32, ms", "bfloat16, ms", "ratio")
    half_precision(half)
    for table in (layers, half):
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
