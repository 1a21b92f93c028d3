"""ResNet-18 compiled for pods of TPUs: which collectives a step has, and their bytes by hand.

The programs are compiled at the lowest optimization level, at which a sum into parts is an
all-reduce of which each device takes its part.
"""

import pytest

from experiments.preflight import libraries
from experiments.preflight.compiler import Compiler
from experiments.preflight.compiler_process import shared_process
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import LOWEST, CompileRequest
from experiments.preflight.targets import target

pytestmark = pytest.mark.slow

# 64 outputs of 7×7×3, then stages of (blocks, width, side), for images of 64×64 pixels.
STAGES = ((2, 64, 16), (2, 128, 8), (2, 256, 4), (2, 512, 2))
FEATURES, CLASSES = 512, 1000


def convolutions() -> list[tuple[int, int, int]]:
    """Side of the kernel, input channels and output channels of each."""
    rows, channels = [(7, 3, 64)], 64
    for blocks, width, _ in STAGES:
        if width != channels:
            rows.append((1, channels, width))  # the projection
        for _ in range(blocks):
            rows += [(3, channels, width), (3, width, width)]
            channels = width
    return rows


KERNELS = sum(k * k * inputs * outputs for k, inputs, outputs in convolutions())
KERNELS += FEATURES * CLASSES
NORMS = sum(outputs for _, _, outputs in convolutions())  # channels of batch norm
F32, BF16 = 4, 2


def gradients(channel_shares: int = 1) -> int:
    """Bytes that data parallelism sums, for the parameters of one of the channels' shares.

    Gradients are bfloat16, those of batch norm are two float32 sums a channel; so are the sums of
    the forward pass.
    """
    parameters = (KERNELS + CLASSES) * BF16
    return (parameters + 2 * 2 * NORMS * F32) // channel_shares


def activations(images: int) -> int:
    """Bytes of the inputs of all layers but the first, each once, for this number of images.

    A block's first convolution and its projection have the same input, and the stride.
    """
    elements = 0
    channels, side = 64, 16
    for blocks, width, output_side in STAGES:
        for _ in range(blocks):
            elements += side**2 * channels + output_side**2 * width
            channels, side = width, output_side
    return images * (elements + FEATURES) * BF16


def test_the_table_has_the_published_number_of_parameters():
    assert KERNELS + CLASSES + 2 * NORMS == 11_689_512  # He et al. 2016; torchvision


@pytest.fixture(scope="module", autouse=True)
def compiler_process():
    """All programs are compiled in one process."""
    with shared_process():
        yield


@pytest.fixture(params=["tpu-v5e-16", "tpu-v5p-8", "tpu-v2-64"])
def compile_for(request, tmp_path):
    """Compiles a strategy for a target; skips without the compiler."""
    pod = target(request.param)
    if libraries.missing(pod):
        pytest.skip(libraries.missing(pod))

    def compile_step(strategy: str):
        spec = ProgramSpec("resnet18", 16 * pod.devices, strategy, "bfloat16", 64)
        with Compiler(pod, time_limit=1800, folder=tmp_path) as compiler:
            result = compiler(CompileRequest(spec, pod, LOWEST))
        assert result.state == "compiled", result.message
        return {entry.kind: entry.bytes for entry in result.collectives}

    return compile_step


def test_data_sums_gradients_and_statistics(compile_for):
    traffic = compile_for("data")
    assert traffic.keys() == {"all-reduce"}
    # Loss and the number of correct predictions are further sums, of 4 bytes each.
    assert 0 <= traffic["all-reduce"] - gradients() <= 16


def test_fsdp_gathers_each_kernel_once_and_no_activations(compile_for):
    traffic = compile_for("fsdp")
    gathered, summed = KERNELS * BF16, gradients()
    if "all-gather" in traffic:
        assert traffic.keys() == {"all-gather", "all-reduce"}
        assert traffic["all-gather"] == gathered
        assert 0 <= traffic["all-reduce"] - summed <= 16
    else:  # for TPU v2 the compiler gathers by sums, to which other devices contribute zeros
        assert 0 <= traffic.pop("all-reduce") - summed - gathered <= 4096
        assert sum(traffic.values()) <= 4096


def test_data_tensor_gathers_the_input_of_each_layer_once(compile_for):
    traffic = compile_for("data_tensor")
    assert traffic.keys() == {"all-gather", "all-reduce"}
    images = 2 * 16  # of a device: the channels are divided by two
    # The logits, and what the last layer's input has more in float32.
    logits = images * CLASSES * F32 + images * FEATURES * (F32 - BF16)
    assert 0 <= traffic["all-gather"] - activations(images) <= logits
    summed = traffic["all-reduce"] - gradients(2)
    assert 0 <= summed - activations(images) <= logits
