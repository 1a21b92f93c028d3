"""What the CPU kernels are worth for plain Flax: ``python -m benchmarks.cpu_layers``.

Questions, each answered by a row or more:

- the depthwise convolution of jax issue 23713, and the transposed convolution over three axes of
  jax issue 31662, forward and with gradients: how long do they take before and after, and in
  PyTorch (where it is installed)?
- a user's own network of plain `nnx.Conv` layers: what does `jaxcnn.accelerate` save?
- `bfloat16`: does a train step take longer than in float32, or than PyTorch's in `bfloat16`?

"Before" is Flax without `accelerate`. All sides of a row run in turn in one process, on the same
number of threads, with freed memory kept.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads of PyTorch must not spin

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxcnn
from benchmarks import command
from benchmarks.samples import HAS_TORCH, Call, results_folder, sample, torch_formats, write
from experiments.analysis.benchmark_tables import half_precision_table, layers_table
from experiments.config import RunConfig
from experiments.peers.definition import make_task
from experiments.records import Record
from jaxcnn import backend, models, training

HALF_PRECISION_CASES = (("mnist_cnn", 128), ("cifar_tutorial", 128), ("resnet18_cifar", 32))

Kinds = dict[str, dict[str, Call]]  # forward, gradients or train step: its sides


def layer_calls(create: Callable[[nnx.Rngs], nnx.Module], images: jax.Array) -> Kinds:
    """The layer as it is and accelerated: forward, and with the gradients of weights and images."""
    kinds: Kinds = {"forward": {}, "gradients": {}}
    for side in ("before", "after"):
        layer = create(nnx.Rngs(0))
        if side == "after":
            jaxcnn.accelerate(layer)
        graph, state = nnx.split(layer)

        def forward(state, images, graph=graph):
            return nnx.merge(graph, state)(images)

        def loss(state, images, forward=forward):
            return (forward(state, images).astype(jnp.float32) ** 2).mean()

        for kind, function in (("forward", forward), ("gradients", jax.grad(loss, (0, 1)))):
            program = jax.jit(function).lower(state, images).compile()
            kinds[kind][side] = _blocking(program, state, images)
    return kinds


def torch_layer_calls(create: Callable[[Any], Any], images: jax.Array) -> Kinds:
    """The same of a PyTorch layer, in both of its memory formats; nothing without PyTorch."""
    kinds: Kinds = {"forward": {}, "gradients": {}}
    if not HAS_TORCH:
        return kinds
    import torch

    array = np.moveaxis(np.asarray(images, np.float32), -1, 1)
    dtype = torch.bfloat16 if images.dtype == jnp.bfloat16 else torch.float32
    for side, memory_format in torch_formats(images.ndim - 2).items():
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

        kinds["forward"][side], kinds["gradients"][side] = forward, gradients
    return kinds


def depthwise() -> tuple[str, Kinds]:
    """Jax issue 23713: 256 channels, 124 x 124 pixels, a batch of one, 3 x 3 taps."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 124, 124, 256)), jnp.float32)
    ours = layer_calls(
        lambda rngs: nnx.Conv(256, 256, (3, 3), feature_group_count=256, rngs=rngs), images
    )
    torch = torch_layer_calls(
        lambda torch: torch.nn.Conv2d(256, 256, 3, padding=1, groups=256), images
    )
    return "depthwise, 256 channels, 124×124, 3×3 (jax issue 23713)", _merged(ours, torch)


def transposed(dtype: Any) -> tuple[str, Kinds]:
    """Jax issue 31662: 64 channels to one, 64 x 64 x 32 pixels, 3 x 3 x 3 taps, stride 2."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 64, 64, 32, 64)), dtype)
    ours = layer_calls(
        lambda rngs: nnx.ConvTranspose(
            64, 1, (3, 3, 3), (2, 2, 2), dtype=dtype, param_dtype=dtype, rngs=rngs
        ),
        images,
    )
    torch = torch_layer_calls(
        lambda torch: torch.nn.ConvTranspose3d(64, 1, 3, 2, padding=1, output_padding=1), images
    )
    title = f"transposed, 3 axes, 64 → 1, 64×64×32, {dtype.__name__} (jax issue 31662)"
    return title, _merged(ours, torch)


def _merged(ours: Kinds, torch: Kinds) -> Kinds:
    return {kind: calls | torch[kind] for kind, calls in ours.items()}


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


def own_network() -> tuple[str, Kinds]:
    """A train step of `OwnNetwork`, 64 x 64 pixels, a batch of 32."""
    rng = np.random.default_rng(0)
    batch = {
        "image": jnp.asarray(rng.normal(size=(32, 64, 64, 3)), jnp.float32),
        "label": jnp.asarray(rng.integers(0, 10, 32), jnp.int32),
    }
    calls = {
        side: train_step_call(OwnNetwork(nnx.Rngs(0)), batch, accelerate=side == "after")
        for side in ("before", "after")
    }
    return "a network of `nnx.Conv` and `nnx.BatchNorm`, 64×64, batch 32", {"train step": calls}


def half_precision(name: str, batch_size: int) -> dict[str, Call]:
    """A train step in `bfloat16` beside float32, and beside PyTorch's variants in `bfloat16`."""
    rng = np.random.default_rng(0)
    shape = (batch_size, *models.spec(name).input_shape)
    batch = {
        "image": jnp.asarray(rng.integers(0, 256, shape), jnp.uint8),
        "label": jnp.asarray(rng.integers(0, 10, batch_size), jnp.int32),
    }
    ours = {
        dtype: train_step_call(models.build(name), batch, precision=dtype)
        for dtype in ("float32", "bfloat16")
    }
    return ours | (torch_half_precision(name, batch_size) if HAS_TORCH else {})


def torch_half_precision(name: str, batch_size: int) -> dict[str, Call]:
    """A train step of the same network by PyTorch's autocast, in both layouts, also compiled."""
    from experiments.peers.in_torch import Torch

    config = RunConfig(
        study="peers",
        model=name,
        batch_size=batch_size,
        image_size=models.spec(name).input_shape[0],
        optimizer="momentum",
        learning_rate=0.01,
        weight_decay=0.0,
        precision="bfloat16",
    )
    task = make_task(config)
    steps: dict[str, Call] = {}
    for compiled in (False, True):
        for channels_last in (False, True):
            layout = "channels last" if channels_last else "channels first"
            peer = Torch(task, channels_last=channels_last, compiled=compiled)
            side = f"torch, {layout}{', compiled' * compiled}"
            steps[side] = functools.partial(peer.train, 1)
    return steps


def train_step_call(model: nnx.Module, batch: dict[str, jax.Array], **options: Any) -> Call:
    state, step = training.create(model, optax.sgd(0.01, momentum=0.9), **options)
    program = jax.jit(step, donate_argnums=0).lower(state, batch).compile()
    current = [state]

    def call() -> None:
        current[0] = jax.block_until_ready(program(current[0], batch)[0])

    return call


def _blocking(program: Callable[..., Any], *arguments: Any) -> Call:
    return lambda: jax.block_until_ready(program(*arguments))


def main() -> None:
    """Writes the records of both benchmarks, and prints their tables."""
    results = results_folder("benchmarks.cpu_layers")
    jaxcnn.keep_freed_memory()
    device = backend.select("cpu")
    layers: list[Record] = []
    steps: list[Record] = []
    for create in (
        depthwise,
        functools.partial(transposed, jnp.float32),
        functools.partial(transposed, jnp.bfloat16),
        own_network,
    ):
        title, kinds = create()
        for kind, calls in kinds.items():
            settings: dict[str, Any] = {"what": title, "call": kind}
            row = len(layers)
            layers.append(write(results, "cpu_layers", device, row, settings, sample(calls)))
    for row, (name, batch_size) in enumerate(HALF_PRECISION_CASES):
        settings = {"model": name, "batch_size": batch_size}
        samples = sample(half_precision(name, batch_size))
        steps.append(write(results, "half_precision", device, row, settings, samples))
    print(layers_table(layers), half_precision_table(steps), sep="\n\n")


if __name__ == "__main__":
    command.run(main)
