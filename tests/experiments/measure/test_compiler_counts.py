"""Compilers' counts in every form in which platforms return them, and what XLA:CPU leaves out."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from experiments.measure.compiler import CompilerCounts, compiler_counts
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.parallel.options import compiler_options


class Executable:
    """An executable whose `cost_analysis` returns or raises the given value."""

    def __init__(self, analysis, text=""):
        self.analysis, self.text = analysis, text

    def as_text(self):
        return self.text

    def cost_analysis(self):
        if isinstance(self.analysis, Exception):
            raise self.analysis
        return self.analysis


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        ({"flops": 10.0, "bytes accessed": 4.0, "utilization0{}": 1.0}, (10.0, 4.0)),
        ([{"flops": 10.0, "bytes accessed": 4.0}], (10.0, 4.0)),
        # one entry per device, all of the same program
        ([{"flops": 10.0}, {"flops": 10.0}], (10.0, None)),
        ({"flops": 0, "bytes accessed": 4}, (0.0, 4.0)),
        ({"flops": -1.0, "bytes accessed": -1.0}, (None, None)),
        ({"flops": float("nan"), "bytes accessed": float("inf")}, (None, None)),
        ({"flops": "many"}, (None, None)),
        ({}, (None, None)),
        ([], (None, None)),
        (None, (None, None)),
        (NotImplementedError(), (None, None)),
        (jax.errors.JaxRuntimeError("UNIMPLEMENTED: no cost analysis"), (None, None)),
    ],
)
def test_every_form_of_cost_analysis_is_understood(analysis, expected):
    assert compiler_counts(Executable(analysis)) == CompilerCounts(*expected)


def test_flops_are_unknown_if_the_program_calls_a_library():
    analysis = {"flops": 10.0, "bytes accessed": 4.0}
    executable = Executable(analysis, 'custom_call_target="jaxcnn$convolution"')
    assert compiler_counts(executable) == CompilerCounts(None, 4.0)


def test_other_errors_propagate():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        compiler_counts(Executable(jax.errors.JaxRuntimeError("INTERNAL: broken")))


def xla_cpu_flops(function, *shapes: tuple[int, ...]) -> float:
    if jax.default_backend() != "cpu":
        pytest.skip("tests what XLA:CPU counts")
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    jitted = jax.jit(function, compiler_options=compiler_options("cpu") or None)
    return compiler_counts(jitted.lower(*arguments).compile()).flops


@pytest.mark.parametrize("side", [8, 256])
def test_xla_cpu_counts_products_and_elementwise_operations(side):
    shapes = (side, side), (side, side)
    assert xla_cpu_flops(jnp.matmul, *shapes) == 2 * side**3
    assert xla_cpu_flops(lambda a, b: jax.nn.relu(a @ b + 1), *shapes) == 2 * side**3 + 2 * side**2


def test_xla_cpu_counts_the_body_of_a_loop_once():
    flops = xla_cpu_flops(lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0], (64, 64))
    assert 2 * 64**3 <= flops <= 2 * 64**3 + 10  # the loop counter adds a few


@pytest.mark.parametrize(
    ("padding", "along"),
    [
        ("VALID", 12 * 3),
        ("SAME", 14 * 3 - 2),  # the first and the last tap each fall into the padding once
    ],
)
def test_xla_cpu_leaves_out_the_padding(padding, along):
    def convolve(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), padding, dimension_numbers=NHWC)

    assert xla_cpu_flops(convolve, (8, 14, 14, 16), (3, 3, 16, 32)) == 2 * 8 * 16 * 32 * along**2
