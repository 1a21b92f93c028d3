"""What compilers say of their programs, in every shape in which they say it, and what XLA:CPU leaves out."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from experiments.measure.compiler import CompilerCounts, compiler_counts
from jaxcnn.ops.convolution import NHWC
from jaxcnn.parallel.options import compiler_options


class Executable:
    """What a platform's `cost_analysis` gives or raises."""

    def __init__(self, found, text=""):
        self.found, self.text = found, text

    def as_text(self):
        return self.text

    def cost_analysis(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"flops": 10.0, "bytes accessed": 4.0, "utilization0{}": 1.0}, (10.0, 4.0)),
        ([{"flops": 10.0, "bytes accessed": 4.0}], (10.0, 4.0)),
        (
            [{"flops": 10.0}, {"flops": 10.0}],
            (10.0, None),
        ),  # one entry a device, each of the same program
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
def test_whatever_a_platform_answers(found, expected):
    assert compiler_counts(Executable(found)) == CompilerCounts(*expected)


def test_what_lies_in_a_library_is_not_counted():
    found = {"flops": 10.0, "bytes accessed": 4.0}
    assert compiler_counts(
        Executable(found, 'custom_call_target="jaxcnn$convolution"')
    ) == CompilerCounts(None, 4.0)


def test_an_error_of_another_kind_is_not_hidden():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        compiler_counts(Executable(jax.errors.JaxRuntimeError("INTERNAL: broken")))


def counted(function, *sizes: tuple[int, ...]) -> float:
    if jax.default_backend() != "cpu":
        pytest.skip("says what XLA:CPU counts")
    arguments = [jax.ShapeDtypeStruct(size, "float32") for size in sizes]
    compiled = (
        jax.jit(function, compiler_options=compiler_options("cpu") or None)
        .lower(*arguments)
        .compile()
    )
    return compiler_counts(compiled).flops


@pytest.mark.parametrize("side", [8, 256])
def test_xla_cpu_counts_a_product_in_full_and_what_follows_it(side):
    sizes = (side, side), (side, side)
    assert counted(jnp.matmul, *sizes) == 2 * side**3
    assert counted(lambda a, b: jax.nn.relu(a @ b + 1), *sizes) == 2 * side**3 + 2 * side**2


def test_xla_cpu_counts_the_body_of_a_loop_once():
    found = counted(lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0], (64, 64))
    assert 2 * 64**3 <= found <= 2 * 64**3 + 10  # the loop's own counting is a few


@pytest.mark.parametrize(
    ("padding", "along"),
    [
        ("VALID", 12 * 3),
        ("SAME", 14 * 3 - 2),  # the first and the last tap fall once into the padding
    ],
)
def test_xla_cpu_leaves_out_the_padding(padding, along):
    def convolve(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), padding, dimension_numbers=NHWC)

    assert counted(convolve, (8, 14, 14, 16), (3, 3, 16, 32)) == 2 * 8 * 16 * 32 * along**2
