"""Every kernel against NumPy in float64, the study's numbers against hand-worked ones, and what is listed."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from experiments import microbenchmarks
from experiments.config import RunConfig
from experiments.harness import figures_of_merit
from experiments.harness.study import Case
from experiments.measure.noise import compare
from experiments.microbenchmarks import (
    Kernel,
    convolution,
    copies,
    layers,
    matmul,
    memory_bandwidth,
    overheads,
)
from experiments.microbenchmarks.kernel import normal
from experiments.microbenchmarks.peak import Peak
from experiments.records.metrics import METRICS
from experiments.studies import kernels as study
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

PLATFORMS = ("cpu", "gpu", "tpu")


def drawn(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def single(function, *operands):
    """The function's result for operands in float32, in float64."""
    return jax.tree.map(
        lambda found: np.asarray(found, np.float64), jax.jit(function)(*map(jnp.float32, operands))
    )


# The layers in NumPy, float64 and `[N, H, W, C]`.


def windows(x):
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)


def ceil_max_pool(x):
    return np.stack(
        [
            np.stack(
                [x[:, i : i + 3, j : j + 3].max((1, 2)) for j in range(0, x.shape[2] - 1, 2)], 1
            )
            for i in range(0, x.shape[1] - 1, 2)
        ],
        1,
    )


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def lrn(x):
    sums = sum(np.pad(x**2, [(0, 0)] * 3 + [(2, 2)])[..., i : i + x.shape[-1]] for i in range(5))
    return x / (2 + 1e-4 * sums) ** 0.75


def local_mean(x, window=9, sigma=9 / 4):
    """With every weight of every pixel written out."""
    n, h, w, _ = x.shape
    mean = np.zeros((n, h, w, 1))
    for (i, j), _ in np.ndenumerate(np.zeros((h, w))):
        near = [
            (p, q)
            for p in range(h)
            for q in range(w)
            if abs(p - i) <= window // 2 and abs(q - j) <= window // 2
        ]
        weights = [np.exp(-((p - i) ** 2 + (q - j) ** 2) / (2 * sigma**2)) for p, q in near]
        values = [x[:, p, q].mean(-1) for p, q in near]
        mean[:, i, j, 0] = np.average(values, axis=0, weights=weights)
    return mean


def lcn(x):
    centred = x - local_mean(x)
    deviation = np.sqrt(local_mean(centred**2))
    return centred / np.maximum(deviation, deviation.mean((1, 2), keepdims=True))


def batch_norm(x, scale, bias):
    return (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5) * scale + bias


NUMPY = {
    "max_pool": lambda x: windows(x).max((2, 4)),
    "max_pool_3_2": ceil_max_pool,
    "average_pool": lambda x: windows(x).mean((2, 4)),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softmax": softmax,
    "lrn": lrn,
    "lcn": lcn,
    "batch_norm": batch_norm,
    "nhwc_to_nchw": lambda x: np.moveaxis(x, 3, 1),
    "nchw_to_nhwc": lambda x: np.moveaxis(x, 1, 3),
    "flatten": lambda x: x.reshape(len(x), -1),
    "transpose": np.transpose,
}
SMALL = {"softmax": ((3, 7),), "transpose": ((3, 7),), "batch_norm": ((2, 6, 7, 5), (5,), (5,))}


@pytest.mark.parametrize("layer", layers.LAYERS, ids=lambda layer: layer.name)
def test_layers_forward_and_backward_against_numpy(layer):
    """Backward along a random direction: the gradient's product with it is the slope of NumPy's function there."""
    operands = drawn(*SMALL.get(layer.name, ((2, 6, 7, 5),)))
    ours = NUMPY[layer.name](*operands)
    np.testing.assert_allclose(single(layer.function, *operands), ours, rtol=1e-4, atol=1e-5)
    (cotangent,) = drawn(ours.shape, seed=1)
    slopes = single(partial(layers.backward, function=layer.function), *operands, cotangent)
    assert [slope.shape for slope in slopes] == [operand.shape for operand in operands]
    for seed in range(2, 5):
        directions, step = drawn(*(operand.shape for operand in operands), seed=seed), 1e-6
        ends = [
            NUMPY[layer.name](
                *(x + sign * step * d for x, d in zip(operands, directions, strict=True))
            )
            for sign in (1, -1)
        ]
        expected = np.sum(cotangent * (ends[0] - ends[1])) / (2 * step)
        found = sum(np.sum(slope * d) for slope, d in zip(slopes, directions, strict=True))
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)


# Convolutions.


def loops(images, kernel, cotangent, stride, padding):
    """The convolution and its two gradients, tap by tap."""
    padded = np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    out, d_padded, d_kernel = (
        np.zeros(cotangent.shape),
        np.zeros(padded.shape),
        np.zeros(kernel.shape),
    )
    for i, j in itertools.product(*map(range, kernel.shape[:2])):
        rows, columns = (
            slice(at, at + stride * size, stride)
            for at, size in zip((i, j), out.shape[1:3], strict=True)
        )
        out += padded[:, rows, columns] @ kernel[i, j]
        d_padded[:, rows, columns] += cotangent @ kernel[i, j].T
        d_kernel[i, j] = np.einsum("nhwc,nhwd->cd", padded[:, rows, columns], cotangent)
    inside = slice(padding, padded.shape[1] - padding)
    return {
        "forward": out,
        "input_gradient": d_padded[:, inside, inside],
        "kernel_gradient": d_kernel,
    }


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 3), (1, 0)])
@pytest.mark.parametrize("lowering", ["ours", "native"])
def test_convolutions_against_loops(stride, padding, lowering):
    layer = convolution.Layer("small", 2, 9, 3, 4, 3, stride, padding)
    operands = drawn(*convolution._shapes(layer))
    expected = loops(*operands, stride, padding)
    for direction, function in convolution.DIRECTIONS.items():
        found = single(
            partial(
                function, convolve=partial(convolution.convolve, layer=layer, lowering=lowering)
            ),
            *operands,
        )
        np.testing.assert_allclose(found, expected[direction], rtol=1e-3, atol=1e-4)


def test_true_convolution_turns_the_kernel():
    """Against SciPy; and example A10 with the kernel turned: the edge between 10 and 0 gives -30 instead of 30."""
    layer = convolution.Layer("small", 1, 6, 1, 1, 3, 1, 0)
    image, kernel = drawn((6, 6), (3, 3))
    edge = np.repeat([[10, 10, 10, 0, 0, 0]], 6, 0), np.array([[1, 0, -1]] * 3)

    def turned(image, kernel):
        return single(
            partial(convolution.true_convolution, layer=layer),
            image[None, :, :, None],
            kernel[:, :, None, None],
        )[0, :, :, 0]

    np.testing.assert_allclose(
        turned(image, kernel), scipy.signal.convolve2d(image, kernel, "valid"), rtol=1e-4, atol=1e-5
    )
    assert turned(*edge).tolist() == [[0, -30, -30, 0]] * 4


def test_layers_of_published_networks():
    """Output sizes and multiply-adds as published, or by hand: 3 · 3 · 256 · 256 · 56² · 4 images for VGG's conv3_2."""
    shapes = {layer.name: convolution._shapes(layer) for layer in convolution.LAYERS}
    assert shapes["lenet5_c3"][2] == (64, 10, 10, 16) and shapes["resnet50_conv1"][2] == (
        8,
        112,
        112,
        64,
    )
    assert shapes["a1_last"][2] == (16, 10, 10, 512) and shapes["darknet19_conv15"][2] == (
        16,
        8,
        8,
        512,
    )
    listed = {kernel.name: kernel for kernel in convolution.kernels("cpu")}
    for direction, lowering in itertools.product(convolution.DIRECTIONS, ("", "-native")):
        kernel = listed[f"convolution-vgg16_conv3_2-{direction}-float32{lowering}"]
        abstract = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes["vgg16_conv3_2"]]
        assert study.model_flops(kernel.function, *abstract) == 2 * 9 * 256 * 256 * 56**2 * 4


# Matrix products.


@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 1e-6), ("bfloat16", 1e-2), ("float16", 1e-3), ("int8", 0)]
)
def test_products_of_every_dtype(dtype, error):
    a, b = normal(dtype, (24, 40), (40, 16))(np.random.default_rng(0))
    found = jax.jit(partial(matmul.product, precision="highest"))(a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert found.dtype == (jnp.int32 if dtype == "int8" else a.dtype)
    assert np.abs(np.asarray(found, np.float64) - expected).max() <= error * np.abs(expected).max()


def test_the_gradient_of_a_sum_of_squares():
    """By hand: a = (1 2), b = (3 4)ᵀ, a·b = 11, its square's slopes 22 b and 22 a."""
    found = single(matmul.gradient, np.array([[1, 2]]), np.array([[3], [4]]))
    assert [slope.tolist() for slope in found] == [[[66, 88]], [[22], [44]]]


def test_multiply_add_keeps_a_single_sum():
    """2048 + 1 is no float16; D3's neurons and E2's layer, by hand."""
    a, b = (jnp.ones((1, 1), jnp.float16) * value for value in (2048, 1))
    assert jax.jit(matmul.fused)(a, b, jnp.ones((1, 1), jnp.float32)).tolist() == [[2049]]
    assert single(
        matmul.product, np.array([[1, 0, 2, -1], [0, 3, -1, 1]]), np.array([1, 2, 3, 4])
    ).tolist() == [3, 7]
    assert single(
        matmul.layer, np.array([[1, 2]]), np.array([[3], [4]]), np.array([5])
    ).tolist() == [[16]]


SMALL_ONES = (
    "matmul-128",
    "matmul_gradient-256",
    "inverse-128",
    "multiply_add-tiles",
    "dense",
    "divisions",
    "rung-tiled",
)
LARGEST = {"float32": 3e-6, "bfloat16": 5e-3, "float16": 1e-3, "int8": 0.0}


@pytest.mark.parametrize(
    "kernel",
    [
        kernel
        for kernel in microbenchmarks.cases("full", "cpu")
        if kernel.name.startswith(SMALL_ONES)
    ],
    ids=lambda kernel: kernel.name,
)
def test_kernels_against_their_references(kernel):
    operands = kernel.make(np.random.default_rng(0))
    error = study._error(kernel, operands, jax.jit(kernel.function)(*operands))["largest_error"]
    assert 0 <= error <= LARGEST[kernel.dtype]


def test_the_largest_error_is_relative_to_the_largest_value():
    kernel = dataclasses.replace(spare(), reference=lambda a: np.array([1.0, -8.0]))
    assert study._error(kernel, (np.zeros(1),), jnp.array([1.5, -8.0, 99.0])) == {
        "largest_error": 0.5 / 8
    }


# Memory, overheads, copies.


def test_stream():
    a, b, c = (np.float32([value, -value]) for value in (7, 2, 5))
    found = {
        name: loop(*(a, b, c)[:arrays]).tolist()
        for name, (loop, arrays) in memory_bandwidth.LOOPS.items()
    }
    assert found == {"copy": [2, -2], "scale": [6, -6], "add": [7, -7], "triad": [17, -17]}


def test_lanes():
    """System A7: 81 divisions take 21 rounds on 4 lanes and 3 on 36."""
    assert [overheads.rounds(81, lanes) for lanes in (1, 4, 36, 81, 100)] == [81, 21, 3, 1, 1]
    with pytest.raises(ValueError, match="81 pieces of work on 0 lanes"):
        overheads.rounds(81, 0)
    operands = overheads._divisible(np.random.default_rng(0))
    for function in (overheads.divisions_at_once, overheads.divisions_in_turn):
        np.testing.assert_allclose(jax.jit(function)(*operands), np.divide(*operands), rtol=1e-6)


@pytest.mark.parametrize("offset", range(16))
def test_copies_are_copies(offset):
    """The host's array and the device's share no memory, wherever the host's lay, and each copy out is another one."""
    host = copies.unaligned(np.arange(1000, dtype=np.float32)[offset:])
    assert host[1] == offset + 1 and host.ctypes.data % 64 == 4
    there = jax.block_until_ready(copies.copy_in(host, jax.devices()[0]))
    host[:] = 0
    first, second = copies.copy_out(there), copies.copy_out(there)
    assert first[1] == second[1] == offset + 1 and not np.shares_memory(first, second)


def test_break_even():
    assert study.break_even([16, 32, 64], [True, True, True]) == 16
    assert study.break_even([16, 32, 64], [True, False, True]) == 64  # a lucky win at 16 is none
    assert study.break_even([16, 32, 64], [True, True, False]) is None
    slow, quick = [[base + i / 1000 for i in range(7)] for base in (2.0, 1.0)]
    assert study.wins(compare(quick, slow, paired=True))
    assert not study.wins(compare(slow, quick, paired=True)) and not study.wins(
        compare(slow, slow, paired=True)
    )


# What is measured.

PEAK = Peak(flops_per_second=1e9, bandwidth=1e8, size=64, convolution=None)


def spare(n=64, **changes) -> Kernel:
    kernel = Kernel(
        "spare", "matrix product", "n×n", "float32", normal("float32", (n, n), (n, n)), jnp.matmul
    )
    return dataclasses.replace(kernel, **changes)


@pytest.fixture
def worth(monkeypatch):
    """What merits say of a measured kernel, on a device of 1 GFLOP/s and 100 MB/s."""
    monkeypatch.setattr(figures_of_merit.peak, "measured", lambda *_: PEAK)
    return lambda found: figures_of_merit.compute(
        Case(RunConfig(), {}, ()), found, Backend("cpu", tuple(jax.devices()[:1]))
    )[0]


def test_a_kernel_against_its_roofline(worth):
    """2 · 64³ FLOPs at 1 GFLOP/s take longer than 3 · 64² · 4 bytes at 100 MB/s: 524 288 ns against 491 520 ns."""
    found = study.measure_kernel(spare(reference=np.matmul), jax.devices()[0], budget=0.02)
    metrics = found.metrics | worth(found)
    assert not metrics.keys() - METRICS.keys()
    assert (metrics["flops_per_call"], metrics["bytes_per_call"]) == (524288, 49152)
    assert metrics["arithmetic_intensity"] == pytest.approx(32 / 3) and metrics[
        "roofline_time"
    ] == pytest.approx(524288e-9)
    assert metrics["flops_per_second"] == pytest.approx(524288 / metrics["call_time"])
    assert metrics["bytes_per_second"] == pytest.approx(49152 / metrics["call_time"])
    assert metrics["roofline_share"] == pytest.approx(524288e-9 / metrics["call_time"])
    assert metrics["call_time_low"] <= metrics["call_time"] <= metrics["call_time_high"]
    assert (
        metrics["call_time"] == np.median(found.samples["call_time"])
        and len(found.samples["call_time"]) >= 7
    )
    assert 0 < metrics["largest_error"] < 1e-2 and metrics["first_step_time"] > 0
    assert (
        found.provenance["lowering"] == "xla"
        and found.provenance["interpreted"] is False
        and found.provenance["noise"]
    )


def test_what_has_no_flops_is_held_against_bandwidth_alone(worth):
    assert study._rates(1e-3, 0, 1000) == {"bytes_per_call": 1000, "bytes_per_second": 1e6}
    triad = spare(
        how="into", function=memory_bandwidth.triad, make=normal("float32", *((1000,),) * 3)
    )
    found = study.measure_kernel(triad, jax.devices()[0], budget=0.02)
    metrics = found.metrics | worth(found)
    assert metrics["bytes_per_call"] == 12000 and metrics["roofline_time"] == pytest.approx(
        12000 / 1e8
    )
    assert not metrics.keys() & {"flops_per_call", "flops_per_second", "arithmetic_intensity"}


@pytest.mark.parametrize("how", ["copy_in", "copy_out"])
def test_a_copy_has_no_roofline(how, worth):
    kernel = spare(how=how, function=getattr(copies, how), make=normal("float32", (256,)))
    found = study.measure_kernel(kernel, jax.devices()[0], budget=0.02)
    metrics = found.metrics | worth(found)
    assert metrics["bytes_per_call"] == 1024 and metrics["bytes_per_second"] == pytest.approx(
        1024 / metrics["call_time"]
    )
    assert not metrics.keys() & {"roofline_time", "roofline_share", "flops_per_call"}


def test_break_even_is_measured_size_by_size():
    kernel = spare(how="break_even", make=normal("float32", (8, 8), (8, 8), (16, 16), (16, 16)))
    found = study.measure_kernel(kernel, jax.devices()[0], budget=0.02)
    rows = found.provenance["break_even"]
    assert [row["size"] for row in rows] == [8, 16] and {
        f"host_time_{n}" for n in (8, 16)
    } <= found.samples.keys()
    won = [row["device_wins"] for row in rows]
    assert found.metrics == ({} if not won[-1] else {"break_even_size": 8 if won[0] else 16})
    assert [row["host_time"] for row in rows] == [
        np.median(found.samples[f"host_time_{n}"]) for n in (8, 16)
    ]


# What is listed.


@pytest.mark.parametrize("platform", PLATFORMS)
def test_names_are_unique_and_quick_ones_are_in_the_full_preset(platform):
    quick, full = (
        [kernel.name for kernel in microbenchmarks.cases(preset, platform)]
        for preset in ("quick", "full")
    )
    assert len(set(full)) == len(full) and set(quick) < set(full) and 40 <= len(quick) <= 70


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_system_has_its_kernels_in_the_quick_preset(platform):
    """B1, B2, C10, D2, D3, E1, E2, E4, A7, A10 of the studied documents."""
    names = " ".join(kernel.name for kernel in microbenchmarks.cases("quick", platform))
    for part in (
        *(
            "matmul-",
            "inverse-",
            "matmul_gradient-",
            "host_to_device-",
            "device_to_host-",
            "copy_break_even",
            "multiply_add-",
        ),
        *(
            "stream-triad",
            "dense-4_3",
            "dense-784_10",
            "rung-scalar_loop",
            "rung-element",
            "rung-tiled",
            "rung-xla",
        ),
        *(
            "-input_gradient",
            "-kernel_gradient",
            "-native",
            "true_convolution",
            "max_pool-backward",
            "average_pool-backward",
        ),
        *(
            "softmax-backward",
            "relu-",
            "sigmoid-",
            "tanh-",
            "lrn-",
            "lcn-",
            "batch_norm-backward",
            "nhwc_to_nchw",
            "dispatch",
        ),
        *("divisions-in_turn", "-bfloat16", "-float16", "-int8", "-highest"),
    ):
        assert part in names, part


def test_unknown_names_say_which_are_known():
    with pytest.raises(InputError, match="unknown preset 'quik': did you mean 'quick'"):
        microbenchmarks.cases("quik", "cpu")
    with pytest.raises(InputError, match=r"unknown platform 'cuda'.*Known: cpu, gpu, tpu"):
        microbenchmarks.cases("quick", "cuda")
    with pytest.raises(
        InputError,
        match=r"unknown dtype 'float8': did you mean .* Known: float32, bfloat16, float16, int8",
    ):
        spare(dtype="float8")
    with pytest.raises(InputError, match="unknown dtype 'int4'"):
        normal("int4", (2, 2))


def test_large_operands_do_not_repeat_row_by_row():
    (operand,) = normal("float32", (2048, 1024))(np.random.default_rng(0))
    assert operand.dtype == np.float32 and len(np.unique(operand[:, 0])) > 1000
    (whole,) = normal("int8", (4096,))(np.random.default_rng(0))
    assert whole.dtype == np.int8 and (whole.min(), whole.max()) == (-127, 127)
