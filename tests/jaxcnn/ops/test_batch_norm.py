"""Batch norm in training against its definition in float64, in values, gradients and masks."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxcnn import ops
from jaxcnn.ops import native
from tests.support.compiler_options import OPTIMIZED
from tests.support.native import lowered_text, requires_kernels

SHAPES = [(8, 6, 6, 5), (16, 12), (3, 1, 1, 64), (70, 3, 130), (2, 9, 17), (33, 1)]
CLIPS = [ops.NO_CLIP, ops.RELU, ops.RELU6, (-0.5, 0.25)]
EPSILON = 1e-3


def random_arrays(shape: tuple[int, ...]):
    """Images, scale, bias, and weights of the result."""
    rng = np.random.default_rng(0)
    images = rng.normal(3, 2, shape).astype(np.float32)
    scale, bias = (rng.normal(size=shape[-1]).astype(np.float32) for _ in range(2))
    return images, scale, bias, rng.normal(size=shape).astype(np.float32)


def normalize(images, scale, bias, clip):
    return ops.batch_norm(images, scale, bias, epsilon=EPSILON, clip=clip)


def reference(images, scale, bias, clip, weights):
    """The result of `normalize` and the gradients of its sum times `weights`, by NumPy."""
    axes = tuple(range(images.ndim - 1))
    images, scale, bias, weights = (np.float64(each) for each in (images, scale, bias, weights))
    mean, variance = images.mean(axes), images.var(axes)
    centered, inverse = images - mean, 1 / np.sqrt(variance + EPSILON)
    unclipped = centered * inverse * scale + bias
    g = np.where((unclipped > clip[0]) & (unclipped < clip[1]), weights, 0)
    bias_gradient, scale_gradient = g.sum(axes), (g * centered * inverse).sum(axes)
    count = images.size // images.shape[-1]
    image_gradient = (scale * inverse) * (
        g - bias_gradient / count - centered * inverse * scale_gradient / count
    )
    result = np.clip(unclipped, *clip)
    return (result, mean, variance), (image_gradient, scale_gradient, bias_gradient)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernels", ["native", "none"])
def test_values_and_gradients(shape, clip, kernels):
    *arguments, weights = random_arrays(shape)

    # Unoptimized, XLA adds numbers one by one, and the rounding errors exceed the tolerance.
    @functools.partial(jax.jit, compiler_options=OPTIMIZED)
    def results_and_gradients(*arguments):
        outputs, pull_back = jax.vjp(lambda *a: normalize(*a, clip), *arguments)
        return outputs, pull_back((weights, *(jnp.ones_like(each) for each in outputs[1:])))

    if kernels == "none":
        with native.without_native_kernels():
            outputs, gradients = results_and_gradients(*arguments)
    else:
        outputs, gradients = results_and_gradients(*arguments)
    expected_outputs, expected_gradients = reference(*arguments, clip, weights)
    for value, expected in zip(
        (*outputs, *gradients), (*expected_outputs, *expected_gradients), strict=True
    ):
        atol = 2e-5 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=atol)


def test_derivatives_agree_with_finite_differences():
    *arguments, weights = random_arrays((3, 2, 2, 3))
    check_grads(
        lambda *a: (normalize(*a, ops.NO_CLIP)[0] * weights).sum(),
        arguments,
        order=1,
        modes=["rev"],
        rtol=5e-2,
    )


def test_nan_stays_nan_and_an_infinite_cotangent_of_a_clipped_value_is_ignored():
    *arguments, _ = random_arrays((8, 3, 3, 4))
    arguments[0][0, 0, 0, 1] = np.nan
    result = normalize(*arguments, ops.RELU)[0]
    assert np.isnan(result[..., 1]).all() and np.isfinite(result[..., 2]).all()
    *arguments, _ = random_arrays((8, 3, 3, 4))
    result, pull_back = jax.vjp(lambda x: normalize(x, *arguments[1:], ops.RELU)[0], arguments[0])
    cotangent = jnp.where(result > 0, 1.0, math.inf)
    assert np.isfinite(pull_back(cotangent)[0]).all()


def test_vmap_normalizes_each_batch_by_itself():
    *arguments, _ = random_arrays((3, 8, 4, 5))
    images, *channels = arguments
    together = jax.vmap(lambda x: normalize(x, *channels, ops.RELU)[0])(images)
    for batch, expected in zip(images, together, strict=True):
        np.testing.assert_allclose(normalize(batch, *channels, ops.RELU)[0], expected, atol=1e-5)


@requires_kernels
def test_the_cpu_takes_three_passes_by_kernels_and_other_platforms_none():
    *arguments, weights = random_arrays((8, 6, 6, 5))

    def step(*arguments):
        return jax.grad(lambda *a: (normalize(*a, ops.RELU)[0] * weights).sum(), (0, 1, 2))(
            *arguments
        )

    if jax.default_backend() == "cpu":
        assert lowered_text(step, *arguments).count(native.CALL_PREFIX) == 3
    assert native.CALL_PREFIX not in lowered_text(step, *arguments, platform="tpu")
