"""The lists of kernels, their operands and their references."""

import jax
import numpy as np
import pytest

from experiments import microbenchmarks
from experiments.microbenchmarks import Kernel
from experiments.microbenchmarks.kernel import normal_operands
from experiments.studies import kernel_timing
from jaxcnn.errors import InputError

PLATFORMS = ("cpu", "gpu", "tpu")
SMALL = (
    "matmul-128",
    "matmul_gradient-256",
    "inverse-128",
    "multiply_add-tiles",
    "dense",
    "divisions",
    "rung-tiled",
)
LARGEST_ERRORS = {"float32": 3e-6, "bfloat16": 5e-3, "float16": 1e-3, "int8": 0.0}
# Parts of the names of the kernels of systems B1, B2, C10, D2, D3, E1, E2, E4, A7 and A10.
SYSTEMS = (
    "matmul-",
    "inverse-",
    "matmul_gradient-",
    "host_to_device-",
    "device_to_host-",
    "copy_break_even",
    "multiply_add-",
    "stream-triad",
    "dense-4_3",
    "dense-784_10",
    "rung-scalar_loop",
    "rung-element",
    "rung-tiled",
    "rung-xla",
    "-input_gradient",
    "-kernel_gradient",
    "-native",
    "true_convolution",
    "max_pool-backward",
    "average_pool-backward",
    "softmax-backward",
    "relu-",
    "sigmoid-",
    "tanh-",
    "lrn-",
    "lcn-",
    "batch_norm-backward",
    "nhwc_to_nchw",
    "dispatch",
    "divisions-in_turn",
    "-bfloat16",
    "-float16",
    "-int8",
    "-highest",
)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_names_are_unique_and_the_quick_preset_is_part_of_the_full_one(platform):
    quick, full = (
        [kernel.name for kernel in microbenchmarks.select_kernels(preset, platform)]
        for preset in ("quick", "full")
    )
    assert len(set(full)) == len(full) and set(quick) < set(full) and 40 <= len(quick) <= 70


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_system_has_its_kernels_in_the_quick_preset(platform):
    names = [kernel.name for kernel in microbenchmarks.select_kernels("quick", platform)]
    missing = [part for part in SYSTEMS if not any(part in name for name in names)]
    assert missing == []


@pytest.mark.parametrize(
    "kernel",
    [k for k in microbenchmarks.select_kernels("full", "cpu") if k.name.startswith(SMALL)],
    ids=lambda kernel: kernel.name,
)
def test_kernels_equal_their_references(kernel):
    operands = kernel.make_operands(np.random.default_rng(0))
    result = jax.jit(kernel.function)(*operands)
    error = kernel_timing._error(kernel, operands, result)["largest_error"]
    assert 0 <= error <= LARGEST_ERRORS[kernel.dtype]


def test_unknown_names_are_errors_that_list_the_known_ones():
    with pytest.raises(InputError, match="unknown preset 'quik': did you mean 'quick'"):
        microbenchmarks.select_kernels("quik", "cpu")
    with pytest.raises(InputError, match=r"unknown platform 'cuda'.*Known: cpu, gpu, tpu"):
        microbenchmarks.select_kernels("quick", "cuda")
    known = r"unknown dtype 'float8': did you mean .* Known: float32, bfloat16, float16, int8"
    with pytest.raises(InputError, match=known):
        Kernel("k", "group", "1", "float8", normal_operands("float32", ()), np.negative)
    with pytest.raises(InputError, match="unknown dtype 'int4'"):
        normal_operands("int4", (2, 2))


def test_large_operands_do_not_repeat_row_by_row():
    (operand,) = normal_operands("float32", (2048, 1024))(np.random.default_rng(0))
    assert operand.dtype == np.float32 and len(np.unique(operand[:, 0])) > 1000
    (integers,) = normal_operands("int8", (4096,))(np.random.default_rng(0))
    assert integers.dtype == np.int8 and (integers.min(), integers.max()) == (-127, 127)
