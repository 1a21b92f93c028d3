"""Model FLOPs compared with an independent count of the programs lowered for three platforms."""

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
    r"dot_general.*contracting_dims = \[([\d, ]*)\] x.* : \(tensor<([\dx]+)xf32>, "
    r".*-> tensor<([\dx]+)xf32>"
)
CONVOLUTION = re.compile(
    r"convolution\(.*dim_numbers = \[(.*?)\]x\[(.*?)\]->\[(.*?)\].* : "
    r"\(tensor<([\dx]+)xf32>, tensor<([\dx]+)xf32>\) -> tensor<([\dx]+)xf32>"
)


def lowered_flops(text: str, name: str = "main") -> int:
    """FLOPs of a function in StableHLO: its own products, and those of each call that it makes."""
    body = {function[1]: function[0] for function in FUNCTION.finditer(text)}[name]
    total = sum(lowered_flops(text, callee) for callee in re.findall(r"call @(\w+)\(", body))
    for contracted, left, result in DOT.findall(body):
        left = [int(size) for size in left.split("x")]
        outputs = math.prod(map(int, result.split("x")))
        total += 2 * outputs * math.prod(left[int(axis)] for axis in contracted.split(","))
    return total + sum(convolution_flops(match) for match in CONVOLUTION.findall(body))


def convolution_flops(match: tuple[str, ...]) -> int:
    """Of a match of `CONVOLUTION`: names of the axes, then sizes, of inputs, kernel and outputs."""
    inputs, kernel, outputs = (
        dict(zip(axes.split(", "), map(int, sizes.split("x")), strict=True))
        for axes, sizes in zip(match[:3], match[3:], strict=True)
    )
    products = 1
    for axis in ("0", "1"):
        smallest, middle, _ = sorted((inputs[axis], kernel[axis], outputs[axis]))
        products *= smallest * middle
    return 2 * outputs["b"] * outputs["f"] * kernel["i"] * products


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize(("name", "side"), [("lenet5", 32), ("mnist_cnn", 28), ("alexnet", 67)])
def test_the_program_lowered_for_a_platform_has_the_model_flops(name, side, platform):
    """Lowerings differ, products do not: on a CPU, each grouped convolution of AlexNet is two."""
    shape = (side, side, models.spec(name).input_shape[2])
    model = models.build(name, input_shape=shape, num_classes=10)
    state, step = training.create(model, optax.sgd(0.1))
    batch = {
        "image": jax.ShapeDtypeStruct((4, *shape), "float32"),
        "label": jax.ShapeDtypeStruct((4,), "int32"),
    }
    with native.without_native_kernels():  # the text does not show what they compute
        text = jax.jit(step).trace(state, batch).lower(lowering_platforms=(platform,)).as_text()
    assert ("batch_group_count = 2" in text) == (name == "alexnet" and platform != "cpu")
    assert lowered_flops(text) == model_flops(step, state, batch)
