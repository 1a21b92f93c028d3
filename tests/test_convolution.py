"""The convolution's fast gradients against `jax.lax` over a product of shapes, and against a loop in NumPy."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn.ops import conv_general_dilated
from jaxcnn.ops.convolution import NHWC

CASES = list(
    itertools.product([(1, 1), (2, 2), (2, 3)], ["VALID", "SAME", ((2, 1), (0, 3))], [(1, 1), (2, 1)], [(3, 3), (1, 1), (2, 5)])
)


def both(strides, padding, dilation, **options):
    settings = {"rhs_dilation": dilation, "dimension_numbers": NHWC, **options}
    return [lambda x, k, f=f: f(x, k, strides, padding, **settings) for f in (conv_general_dilated, lax.conv_general_dilated)]


@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), CASES)
def test_values_and_gradients_are_those_of_lax(strides, padding, dilation, window):
    keys = jax.random.split(jax.random.key(0), 3)
    images, kernel = jax.random.normal(keys[0], (2, 11, 9, 3)), jax.random.normal(keys[1], (*window, 3, 4))
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
    expected, image_gradient, kernel_gradient = np.zeros((2, 3, 5, 3)), np.zeros_like(images), np.zeros_like(kernel)
    for n, i, j in np.ndindex(2, 3, 5):
        patch = images[n, i : i + 3, j : j + 2]
        expected[n, i, j] = np.einsum("hwc,hwcd->d", patch, kernel)
        image_gradient[n, i : i + 3, j : j + 2] += np.einsum("d,hwcd->hwc", cotangent[n, i, j], kernel)
        kernel_gradient += np.einsum("hwc,d->hwcd", patch, cotangent[n, i, j])
    ours, _ = both((1, 1), "VALID", (1, 1))
    found, backward = jax.vjp(ours, jnp.float32(images), jnp.float32(kernel))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(backward(jnp.float32(cotangent)), (image_gradient, kernel_gradient), strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precisions(dtype):
    images = jax.random.normal(jax.random.key(0), (4, 8, 8, 3), dtype)
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 5), dtype)
    ours, native = both((1, 1), "SAME", (1, 1))
    gradients = [jax.grad(lambda x, k, f=f: f(x, k).astype("float32").sum(), (0, 1))(images, kernel) for f in (ours, native)]
    for gradient, reference in zip(*gradients, strict=True):
        assert gradient.dtype == dtype
        np.testing.assert_allclose(np.float32(gradient), np.float32(reference), rtol=2e-2, atol=0.3)


def test_groups_pass_through_to_lax():
    images, kernel = jnp.ones((1, 5, 5, 4)), jnp.ones((3, 3, 2, 6))
    ours, native = both((1, 1), "SAME", (1, 1), feature_group_count=2)
    np.testing.assert_array_equal(ours(images, kernel), native(images, kernel))


def test_vmap_and_second_derivatives():
    ours, native = both((1, 1), "SAME", (1, 1))
    images = jax.random.normal(jax.random.key(0), (3, 2, 6, 6, 2))
    kernels = jax.random.normal(jax.random.key(1), (3, 3, 3, 2, 2))

    def curvature(f):
        slope = jax.grad(lambda k, x: jnp.sum(f(x, k) ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    np.testing.assert_allclose(curvature(ours), curvature(native), rtol=1e-3)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_keep_their_own_gradients(platform):
    ours, native = both((1, 1), "SAME", (1, 1))
    arguments = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 4))

    def convolutions(f) -> list[str]:
        lowered = (
            jax.jit(jax.grad(lambda x, k: jnp.sum(f(x, k) ** 2), (0, 1))).trace(*arguments).lower(lowering_platforms=(platform,))
        )
        return sorted(re.findall(r"stablehlo\.convolution.*?dim_numbers = (.*?), window", lowered.as_text()))

    assert convolutions(ours) == convolutions(native)
    assert len(convolutions(ours)) == 3
