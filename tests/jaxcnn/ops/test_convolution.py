"""The convolution's fast gradients against `jax.lax` over a product of shapes, and against a loop in NumPy."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from experiments.measure.flops import model_flops
from jaxcnn.ops import conv_general_dilated
from jaxcnn.ops.convolution import NHWC

CASES = list(
    itertools.product(
        [(1, 1), (2, 2), (2, 3)],
        ["VALID", "SAME", ((2, 1), (0, 3))],
        [(1, 1), (2, 1)],
        [(3, 3), (1, 1), (2, 5)],
    )
)


def both(strides, padding, dilation, **options):
    settings = {"rhs_dilation": dilation, "dimension_numbers": NHWC, **options}
    return [
        lambda x, k, f=f: f(x, k, strides, padding, **settings)
        for f in (conv_general_dilated, lax.conv_general_dilated)
    ]


@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), CASES)
def test_values_and_gradients_are_those_of_lax(strides, padding, dilation, window):
    keys = jax.random.split(jax.random.key(0), 3)
    images, kernel = (
        jax.random.normal(keys[0], (2, 11, 9, 3)),
        jax.random.normal(keys[1], (*window, 3, 4)),
    )
    ours, native = both(strides, padding, dilation)
    expected, backward = jax.vjp(native, images, kernel)
    found, our_backward = jax.vjp(ours, images, kernel)
    cotangent = jax.random.normal(keys[2], expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(our_backward(cotangent), backward(cotangent), strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=2e-5)


def test_against_a_loop_in_numpy():
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(2, 5, 6, 2)), rng.normal(size=(3, 2, 2, 3))
    cotangent = rng.normal(size=(2, 3, 5, 3))
    expected, image_gradient, kernel_gradient = (
        np.zeros((2, 3, 5, 3)),
        np.zeros_like(images),
        np.zeros_like(kernel),
    )
    for n, i, j in np.ndindex(2, 3, 5):
        patch = images[n, i : i + 3, j : j + 2]
        expected[n, i, j] = np.einsum("hwc,hwcd->d", patch, kernel)
        image_gradient[n, i : i + 3, j : j + 2] += np.einsum(
            "d,hwcd->hwc", cotangent[n, i, j], kernel
        )
        kernel_gradient += np.einsum("hwc,d->hwcd", patch, cotangent[n, i, j])
    ours, _ = both((1, 1), "VALID", (1, 1))
    found, backward = jax.vjp(ours, jnp.float32(images), jnp.float32(kernel))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(
        backward(jnp.float32(cotangent)), (image_gradient, kernel_gradient), strict=True
    ):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precisions(dtype):
    images = jax.random.normal(jax.random.key(0), (4, 8, 8, 3), dtype)
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 5), dtype)
    ours, native = both((1, 1), "SAME", (1, 1))
    gradients = [
        jax.grad(lambda x, k, f=f: f(x, k).astype("float32").sum(), (0, 1))(images, kernel)
        for f in (ours, native)
    ]
    for gradient, reference in zip(*gradients, strict=True):
        assert gradient.dtype == dtype
        np.testing.assert_allclose(np.float32(gradient), np.float32(reference), rtol=2e-2, atol=0.3)


GROUPED = [((1, 1), "SAME", (1, 1)), ((2, 1), "VALID", (1, 2)), ((1, 1), ((2, 2), (2, 2)), (1, 1))]


@pytest.mark.parametrize(("groups", "settings"), list(itertools.product([2, 4, 8, 16], GROUPED)))
def test_groups(groups, settings):
    """Sixteen pass through to `jax.lax`."""
    keys = jax.random.split(jax.random.key(0), 3)
    images, kernel = (
        jax.random.normal(keys[0], (2, 8, 7, 16)),
        jax.random.normal(keys[1], (3, 3, 16 // groups, 32)),
    )
    found, expected = both(*settings, feature_group_count=groups)
    (found, our_backward), (expected, backward) = (
        jax.vjp(found, images, kernel),
        jax.vjp(expected, images, kernel),
    )
    cotangent = jax.random.normal(keys[2], expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(our_backward(cotangent), backward(cotangent), strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=2e-5)


def test_each_group_sees_its_own_channels_alone():
    """In NumPy: the first half of the outputs from the first half of the channels, the second from the second."""
    rng = np.random.default_rng(0)
    images, kernel, cotangent = (
        rng.normal(size=(1, 4, 5, 4)),
        rng.normal(size=(2, 3, 2, 6)),
        rng.normal(size=(1, 3, 3, 6)),
    )
    expected, image_gradient, kernel_gradient = (
        np.zeros((1, 3, 3, 6)),
        np.zeros_like(images),
        np.zeros_like(kernel),
    )
    for i, j, d in np.ndindex(3, 3, 6):
        channels = slice(0, 2) if d < 3 else slice(2, 4)
        expected[0, i, j, d] = np.sum(images[0, i : i + 2, j : j + 3, channels] * kernel[..., d])
        image_gradient[0, i : i + 2, j : j + 3, channels] += cotangent[0, i, j, d] * kernel[..., d]
        kernel_gradient[..., d] += cotangent[0, i, j, d] * images[0, i : i + 2, j : j + 3, channels]
    ours, _ = both((1, 1), "VALID", (1, 1), feature_group_count=2)
    found, backward = jax.vjp(ours, jnp.float32(images), jnp.float32(kernel))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(
        backward(jnp.float32(cotangent)), (image_gradient, kernel_gradient), strict=True
    ):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-5)


def test_other_options_pass_through_to_lax():
    images, kernel = (
        jax.random.normal(jax.random.key(0), (4, 5, 5, 3)),
        jax.random.normal(jax.random.key(1), (3, 3, 3, 6)),
    )
    ours, native = both((1, 1), "SAME", (1, 1), batch_group_count=2)
    np.testing.assert_array_equal(ours(images, kernel), native(images, kernel))
    assert ours(images, kernel).shape == (2, 5, 5, 6)
    ours, _ = both((1, 1), "SAME", (1, 1), preferred_element_type=jnp.float32)
    assert ours(images.astype("bfloat16"), kernel.astype("bfloat16")).dtype == "float32"


def test_groups_that_do_not_divide_the_channels_are_refused():
    ours, _ = both((1, 1), "SAME", (1, 1), feature_group_count=3)
    with pytest.raises(ValueError, match="feature_group_count"):
        ours(jnp.ones((1, 5, 5, 4)), jnp.ones((3, 3, 2, 6)))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_grouped_convolution_has_as_many_flops_on_every_platform(groups):
    images, kernel = jnp.ones((2, 6, 6, 4)), jnp.ones((3, 3, 4 // groups, 8))
    counts = [
        model_flops(jax.grad(lambda x, k, f=f: jnp.sum(f(x, k) ** 2), (0, 1)), images, kernel)
        for f in both((1, 1), "SAME", (1, 1), feature_group_count=groups)
    ]
    assert counts == [3 * 2 * 2 * 36 * 8 * 9 * 4 // groups] * 2


@pytest.mark.parametrize("groups", [1, 2])
def test_vmap_and_second_derivatives(groups):
    ours, native = both((1, 1), "SAME", (1, 1), feature_group_count=groups)
    images = jax.random.normal(jax.random.key(0), (3, 2, 6, 6, 2))
    kernels = jax.random.normal(jax.random.key(1), (3, 3, 3, 2 // groups, 2))

    def curvature(f):
        slope = jax.grad(lambda k, x: jnp.sum(f(x, k) ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    np.testing.assert_allclose(curvature(ours), curvature(native), rtol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_keep_their_own_gradients(platform, groups):
    ours, native = both((1, 1), "SAME", (1, 1), feature_group_count=groups)
    arguments = jnp.ones((2, 8, 8, 4)), jnp.ones((3, 3, 4 // groups, 4))

    def convolutions(f) -> list[str]:
        lowered = (
            jax.jit(jax.grad(lambda x, k: jnp.sum(f(x, k) ** 2), (0, 1)))
            .trace(*arguments)
            .lower(lowering_platforms=(platform,))
        )
        return sorted(
            re.findall(r"stablehlo\.convolution.*?dim_numbers = (.*?), window", lowered.as_text())
        )

    assert convolutions(ours) == convolutions(native)
    assert len(convolutions(ours)) == 3
