"""Single convolutions on a CPU, by each of our methods and PyTorch's.

    python -m benchmarks.convolutions

Question: how many FLOP/s does a convolution reach, forward and as the gradient with respect to the
kernel: directly, as the library computes it by default (by Winograd's method where its cost model
prefers that), and in PyTorch, in the better of its two memory formats? FLOPs are those of the
convolution as defined, although Winograd's method does fewer. All sides of a row run in turn.
"""

import math
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads of PyTorch must not spin

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxcnn
from benchmarks import command
from benchmarks.samples import HAS_TORCH, Call, results_folder, sample, torch_formats, write
from experiments.analysis.benchmark_tables import convolutions_table
from experiments.records import Record
from jaxcnn import backend, ops


class Shape(NamedTuple):
    """A square convolution with padding ``SAME``."""

    examples: int
    side: int
    inputs: int
    outputs: int
    taps: int
    stride: int = 1

    @property
    def label(self) -> str:
        strides = f", stride {self.stride}" * (self.stride > 1)
        sizes = f"{self.examples}, {self.side}², {self.inputs} → {self.outputs}"
        return f"{sizes}, {self.taps}×{self.taps}{strides}"

    @property
    def flops(self) -> int:
        """Taps in the padding included."""
        side = math.ceil(self.side / self.stride)
        pixels = self.examples * side**2
        return 2 * pixels * self.taps**2 * self.inputs * self.outputs


SHAPES = (
    Shape(64, 16, 128, 128, 3),
    Shape(16, 64, 64, 64, 3),
    Shape(16, 128, 32, 32, 3),
    Shape(16, 16, 256, 256, 3),
    Shape(64, 4, 512, 512, 3),
    Shape(16, 5, 512, 512, 3),
    Shape(64, 14, 32, 64, 5),
    Shape(128, 12, 64, 64, 5),
    Shape(128, 28, 1, 6, 5),
    Shape(64, 32, 64, 128, 1, 2),
    Shape(16, 56, 256, 64, 1),
)
PRECISIONS = {"direct": lax.Precision.HIGHEST, "default": None}


def our_calls(shape: Shape, images: np.ndarray, kernel: np.ndarray) -> dict[str, dict[str, Call]]:
    """Forward and kernel gradient, each directly and as by default."""
    placed = jax.device_put(images), jax.device_put(kernel)
    kinds: dict[str, dict[str, Call]] = {"forward": {}, "kernel gradient": {}}
    for side, precision in PRECISIONS.items():

        def forward(images, kernel, precision=precision):
            return ops.conv_general_dilated(
                images,
                kernel,
                (shape.stride, shape.stride),
                "SAME",
                dimension_numbers=ops.NHWC,
                precision=precision,
            )

        def gradient(images, kernel, cotangent, forward=forward):
            return jax.vjp(lambda kernel: forward(images, kernel), kernel)[1](cotangent)

        cotangent = jnp.ones(jax.eval_shape(forward, *placed).shape)
        kinds["forward"][side] = _blocking(forward, *placed)
        kinds["kernel gradient"][side] = _blocking(gradient, *placed, cotangent)
    return kinds


def torch_calls(shape: Shape, images: np.ndarray, kernel: np.ndarray) -> dict[str, dict[str, Call]]:
    """The same in PyTorch, in both memory formats; nothing without PyTorch."""
    kinds: dict[str, dict[str, Call]] = {"forward": {}, "kernel gradient": {}}
    if not HAS_TORCH:
        return kinds
    import torch

    padding = (shape.taps - 1) // 2
    for side, memory_format in torch_formats(axes=2).items():
        x = torch.from_numpy(np.moveaxis(images, -1, 1).copy()).to(memory_format=memory_format)
        w = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()).to(memory_format=memory_format)

        def forward(x=x, w=w):
            with torch.inference_mode():
                return torch.nn.functional.conv2d(x, w, stride=shape.stride, padding=padding)

        cotangent = torch.ones_like(forward()).to(memory_format=memory_format)

        def gradient(x=x, w=w, cotangent=cotangent):
            torch.ops.aten.convolution_backward(
                *(cotangent, x, w, None),
                *([shape.stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1),
                [False, True, False],
            )

        kinds["forward"][side], kinds["kernel gradient"][side] = forward, gradient
    return kinds


def _blocking(function: Callable[..., Any], *arguments: Any) -> Call:
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def main() -> None:
    """Writes a record for each convolution and kind of call, and prints the table."""
    results = results_folder("benchmarks.convolutions")
    jaxcnn.keep_freed_memory()
    device, rng = backend.select("cpu"), np.random.default_rng(0)
    rows: list[Record] = []
    for shape in SHAPES:
        images = rng.normal(size=(shape.examples, shape.side, shape.side, shape.inputs))
        kernel = rng.normal(size=(shape.taps, shape.taps, shape.inputs, shape.outputs))
        operands = images.astype(np.float32), kernel.astype(np.float32)
        ours, torch = our_calls(shape, *operands), torch_calls(shape, *operands)
        for kind, calls in ours.items():
            settings = {"convolution": shape.label, "call": kind, "flops": shape.flops}
            samples = sample(calls | torch[kind])
            rows.append(write(results, "convolutions", device, len(rows), settings, samples))
    print(convolutions_table(rows))


if __name__ == "__main__":
    command.run(main)
