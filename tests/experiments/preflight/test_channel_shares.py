"""The part of a kernel that each of several devices runs, by hand."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import lax

from experiments.preflight.channel_shares import channel_share
from experiments.preflight.operation import CONVOLUTION, GROUPED, PRODUCT
from experiments.preflight.operations import operations
from experiments.preflight.program import ProgramSpec
from experiments.preflight.worker import _count


def shares_of_convolutions(inputs: int, outputs: int, groups: int, devices: int) -> list[float]:
    """Of a strided convolution 3×3 and its two gradients."""
    images = jax.ShapeDtypeStruct((2, 8, 8, inputs), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, inputs // groups, outputs), jnp.float32)

    def loss(images, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        result = lax.conv_general_dilated(
            images, kernel, (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )
        return jnp.sum(jnp.tanh(result))

    kernels = operations(jax.grad(loss, (0, 1)), images, kernel, platform="gpu")
    return [channel_share(item, devices) for item in kernels if item.kind in (CONVOLUTION, GROUPED)]


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups", "share"),
    [
        (3, 16, 1, 1 / 8),  # each device computes two of the outputs
        (16, 10, 1, 1),
        (384, 384, 2, 1),  # whose groups eight devices cannot share
        (48, 48, 6, 1),
        (64, 64, 8, 1 / 8),
        (128, 128, 32, 1 / 8),
        (24, 24, 24, 1 / 8),  # depthwise
        (58, 58, 58, 1),
    ],
)
def test_a_convolution_and_its_gradients_are_shared_by_outputs_and_groups(
    inputs, outputs, groups, share
):
    assert shares_of_convolutions(inputs, outputs, groups, 8) == [share] * 3


@pytest.mark.parametrize(
    ("inputs", "outputs", "strides", "share"),
    [(16, 10, 1, 1), (10, 16, 1, 1 / 8), (16, 10, 2, 1), (10, 16, 2, 1 / 8)],
)
@pytest.mark.parametrize("transpose_kernel", [False, True])
def test_a_transposed_convolution_is_shared_by_its_outputs(
    inputs, outputs, strides, share, transpose_kernel
):
    layer = nnx.ConvTranspose(
        inputs, outputs, (3, 3), strides, transpose_kernel=transpose_kernel, rngs=nnx.Rngs(0)
    )
    graphdef, params = nnx.split(layer)

    def loss(images, params):
        return jnp.sum(jnp.tanh(nnx.merge(graphdef, params)(images)))

    images = jax.ShapeDtypeStruct((2, 8, 8, inputs), jnp.float32)
    kernels = operations(jax.grad(loss, (0, 1)), images, params, platform="gpu")
    shares = [channel_share(item, 8) for item in kernels if item.kind == CONVOLUTION]
    assert shares == [share] * 3


@pytest.mark.parametrize(("outputs", "share"), [(16, 1 / 8), (10, 1)])
@pytest.mark.parametrize("axes", [(), (4, 4)])
def test_a_product_and_its_gradients_are_shared_by_the_outputs_of_the_layer(axes, outputs, share):
    def loss(inputs, weights):
        return jnp.sum(jnp.tanh(inputs @ weights))

    inputs = jax.ShapeDtypeStruct((6, *axes, 24), jnp.float32)
    weights = jax.ShapeDtypeStruct((24, outputs), jnp.float32)
    kernels = operations(jax.grad(loss, (0, 1)), inputs, weights, platform="gpu")
    assert [channel_share(item, 8) for item in kernels if item.kind == PRODUCT] == [share] * 3


def test_other_kernels_are_shared_by_the_channels_of_their_largest_array():
    def scaled_and_pooled(images, scale):
        return lax.reduce_window(
            images * scale, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )

    for channels, share in ((16, 1 / 8), (20, 1)):
        images = jax.ShapeDtypeStruct((2, 8, 8, channels), jnp.float32)
        scale = jax.ShapeDtypeStruct((channels,), jnp.float32)
        kernels = operations(scaled_and_pooled, images, scale, platform="gpu")
        assert {item.kind for item in kernels} == {"elementwise", "pool"}
        assert [channel_share(item, 8) for item in kernels] == [share] * 2


def test_each_device_computes_the_grouped_convolutions_of_alexnet_whole():
    def flops(strategy: str, kind: str) -> float:
        counts = _count(ProgramSpec("alexnet", 8, strategy, "float32", 224), "gpu", 8)
        return sum(item.flops for item in counts["operations"] if item.kind == kind)

    assert flops("tensor", GROUPED) == pytest.approx(8 * flops("data", GROUPED))
    assert flops("tensor", CONVOLUTION) == pytest.approx(flops("data", CONVOLUTION))
