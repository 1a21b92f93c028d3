"""Model FLOPs against a count, written once more, of the programs that JAX hands to the compilers of three platforms."""

import math
import re

import jax
import optax
import pytest

from experiments.measure.flops import model_flops
from jaxcnn import models, training
from jaxcnn.ops import native

FUNCTION = re.compile(r"func\.func (?:public |private )?@(\S+?)\(.*?\n  }", re.DOTALL)
DOT = re.compile(
    r"dot_general.*contracting_dims = \[([\d, ]*)\] x.* : \(tensor<([\dx]+)xf32>, .*-> tensor<([\dx]+)xf32>"
)
CONVOLUTION = re.compile(
    r"convolution\(.*dim_numbers = \[(.*?)\]x\[(.*?)\]->\[(.*?)\].* : \(tensor<([\dx]+)xf32>, tensor<([\dx]+)xf32>\) -> tensor<([\dx]+)xf32>"
)


def lowered_flops(text: str, name: str = "main") -> int:
    """FLOPs of a function in StableHLO: its products, and those of the functions that it calls, each time it does."""
    body = {found[1]: found[0] for found in FUNCTION.finditer(text)}[name]
    total = sum(lowered_flops(text, callee) for callee in re.findall(r"call @(\w+)\(", body))
    for contracted, left, result in DOT.findall(body):
        left = [int(size) for size in left.split("x")]
        total += (
            2
            * math.prod(map(int, result.split("x")))
            * math.prod(left[int(axis)] for axis in contracted.split(","))
        )
    for found in CONVOLUTION.findall(body):
        names = [entry.split(", ") for entry in found[:3]]
        inputs, kernel, outputs = (
            dict(zip(axes, map(int, sizes.split("x")), strict=True))
            for axes, sizes in zip(names, found[3:], strict=True)
        )
        along = (sorted((inputs[axis], kernel[axis], outputs[axis]))[:2] for axis in ("0", "1"))
        total += (
            2
            * outputs["b"]
            * outputs["f"]
            * kernel["i"]
            * math.prod(math.prod(two) for two in along)
        )
    return total


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(("name", "side"), [("lenet5", 32), ("mnist_cnn", 28), ("alexnet", 67)])
def test_the_program_lowered_for_a_platform_has_as_many(name, side, platform):
    """Where the lowerings differ, the products are the same: AlexNet's grouped convolutions are two each on a CPU."""
    shape = (side, side, models.spec(name).input_shape[2])
    model = models.build(name, input_shape=shape, num_classes=10)
    state, step = training.create(model, optax.sgd(0.1))
    batch = {
        "image": jax.ShapeDtypeStruct((4, *shape), "float32"),
        "label": jax.ShapeDtypeStruct((4,), "int32"),
    }
    with native.without_native_kernels():  # into whose calls the text does not look
        text = jax.jit(step).trace(state, batch).lower(lowering_platforms=(platform,)).as_text()
    assert ("batch_group_count = 2" in text) == (name == "alexnet" and platform != "cpu")
    assert lowered_flops(text) == model_flops(step, state, batch)
