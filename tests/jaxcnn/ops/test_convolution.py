"""Convolutions and their gradients against `jax.lax` for many shapes, and against NumPy loops."""

import itertools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from experiments.measure.flops import model_flops
from jaxcnn.ops import conv_general_dilated
from jaxcnn.ops.conv_spec import NHWC
from tests.support.native import lowered_text, requires_kernels, run_program_for_a_gpu

CASES = list(
    itertools.product(
        [(1, 1), (2, 2), (2, 3)],
        ["VALID", "SAME", ((2, 1), (0, 3))],
        [(1, 1), (2, 1)],
        [(3, 3), (1, 1), (2, 5)],
    )
)


def ours_and_jaxs(strides, padding, dilation, **options):
    """The same convolution by `jaxcnn` and by `jax.lax`, as functions of images and kernel."""
    settings = {"rhs_dilation": dilation, "dimension_numbers": NHWC, **options}
    return [
        lambda x, k, f=f: f(x, k, strides, padding, **settings)
        for f in (conv_general_dilated, lax.conv_general_dilated)
    ]


def assert_same_values_and_gradients(ours, reference, images, kernel, key):
    expected, reference_backward = jax.vjp(reference, images, kernel)
    result, backward = jax.vjp(ours, images, kernel)
    cotangent = jax.random.normal(key, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    for gradient, expected_gradient in zip(
        backward(cotangent), reference_backward(cotangent), strict=True
    ):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), CASES)
def test_values_and_gradients_agree_with_lax(strides, padding, dilation, window):
    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (2, 11, 9, 3))
    kernel = jax.random.normal(keys[1], (*window, 3, 4))
    ours, reference = ours_and_jaxs(strides, padding, dilation)
    assert_same_values_and_gradients(ours, reference, images, kernel, keys[2])


def assert_agrees_with_numpy(ours, images, kernel, cotangent, expected, gradients):
    result, backward = jax.vjp(ours, jnp.float32(images), jnp.float32(kernel))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    for gradient, reference in zip(backward(jnp.float32(cotangent)), gradients, strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-5)


def test_values_and_gradients_agree_with_a_loop_in_numpy():
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(2, 5, 6, 2)), rng.normal(size=(3, 2, 2, 3))
    cotangent = rng.normal(size=(2, 3, 5, 3))
    expected = np.zeros((2, 3, 5, 3))
    image_gradient, kernel_gradient = np.zeros_like(images), np.zeros_like(kernel)
    for n, i, j in np.ndindex(2, 3, 5):
        window = (n, slice(i, i + 3), slice(j, j + 2))
        expected[n, i, j] = np.einsum("hwc,hwcd->d", images[window], kernel)
        image_gradient[window] += np.einsum("d,hwcd->hwc", cotangent[n, i, j], kernel)
        kernel_gradient += np.einsum("hwc,d->hwcd", images[window], cotangent[n, i, j])
    ours, _ = ours_and_jaxs((1, 1), "VALID", (1, 1))
    gradients = (image_gradient, kernel_gradient)
    assert_agrees_with_numpy(ours, images, kernel, cotangent, expected, gradients)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilation", [(1, 1), (1, 2)])
def test_a_window_of_the_whole_image_is_a_dense_layer(strides, dilation):
    rng = np.random.default_rng(0)
    kernel, cotangent = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(6, 1, 1, 5))
    size = 2, 2 * dilation[1] + 1
    images, image_gradient = rng.normal(size=(6, *size, 4)), np.zeros((6, *size, 4))
    seen = images[:, :, :: dilation[1]]
    expected = seen.reshape(6, 24) @ kernel.reshape(24, 5)
    image_gradient[:, :, :: dilation[1]] = np.einsum("nijd,hwcd->nhwc", cotangent, kernel)
    kernel_gradient = np.einsum("nhwc,nijd->hwcd", seen, cotangent)
    ours, _ = ours_and_jaxs(strides, "VALID", dilation)
    gradients = (image_gradient, kernel_gradient)
    result = expected.reshape(cotangent.shape)
    assert_agrees_with_numpy(ours, images, kernel, cotangent, result, gradients)


@requires_kernels
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_gradients_of_a_window_of_the_whole_image_are_matrix_products(dtype):
    """The kernels take a matrix for an image one pixel high."""
    images, kernel = jnp.ones((6, 2, 3, 4), dtype), jnp.ones((2, 3, 4, 5), dtype)
    ours, _ = ours_and_jaxs((1, 1), "VALID", (1, 1))
    text = lowered_text(jax.grad(lambda x, k: jnp.sum(ours(x, k) ** 2), (0, 1)), images, kernel)
    calls = re.findall(r"@jaxcnn\$(\w+)\(.*\) -> tensor<([\dx]+)xf32>", text)
    assert sorted(calls) == [
        ("convolution", "1x1x6x24"),
        ("convolution", "6x1x1x5"),
        ("kernel_gradient", "1x1x24x5"),
    ]


def test_the_strided_image_gradient_by_hand():
    """The five positions in the docstring of `jaxcnn.ops.strided_gradient`."""
    kernel, cotangent = jnp.array([2.0, 3.0, 5.0]), jnp.array([1.0, 10.0])
    ours, _ = ours_and_jaxs((1, 2), "VALID", (1, 1))
    images = jnp.zeros((1, 1, 5, 1))
    _, backward = jax.vjp(lambda x: ours(x, kernel.reshape(1, 3, 1, 1)), images)
    gradient = backward(cotangent.reshape(1, 1, 2, 1))[0].ravel()
    # dy[0] w[0], dy[0] w[1], dy[1] w[0] + dy[0] w[2], dy[1] w[1], dy[1] w[2]
    assert gradient.tolist() == [2, 3, 10 * 2 + 5, 10 * 3, 10 * 5]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_half_precisions_agree_with_lax(dtype):
    images = jax.random.normal(jax.random.key(0), (4, 8, 8, 3), dtype)
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 5), dtype)
    gradients = [
        jax.grad(lambda x, k, f=f: f(x, k).astype("float32").sum(), (0, 1))(images, kernel)
        for f in ours_and_jaxs((1, 1), "SAME", (1, 1))
    ]
    for gradient, reference in zip(*gradients, strict=True):
        assert gradient.dtype == dtype
        np.testing.assert_allclose(np.float32(gradient), np.float32(reference), rtol=2e-2, atol=0.3)


GROUPED = [((1, 1), "SAME", (1, 1)), ((2, 1), "VALID", (1, 2)), ((1, 1), ((2, 2), (2, 2)), (1, 1))]


@pytest.mark.parametrize(("groups", "settings"), list(itertools.product([2, 4, 8, 16], GROUPED)))
def test_grouped_convolutions_agree_with_lax(groups, settings):
    """Sixteen groups are passed on to `jax.lax`."""
    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (2, 8, 7, 16))
    kernel = jax.random.normal(keys[1], (3, 3, 16 // groups, 32))
    ours, reference = ours_and_jaxs(*settings, feature_group_count=groups)
    assert_same_values_and_gradients(ours, reference, images, kernel, keys[2])


def test_each_group_reads_only_its_own_channels():
    """In NumPy: the first half of the outputs depends on the first half of the channels only."""
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(1, 4, 5, 4)), rng.normal(size=(2, 3, 2, 6))
    cotangent = rng.normal(size=(1, 3, 3, 6))
    expected = np.zeros((1, 3, 3, 6))
    image_gradient, kernel_gradient = np.zeros_like(images), np.zeros_like(kernel)
    for i, j, d in np.ndindex(3, 3, 6):
        channels = slice(0, 2) if d < 3 else slice(2, 4)
        window = (0, slice(i, i + 2), slice(j, j + 3), channels)
        expected[0, i, j, d] = np.sum(images[window] * kernel[..., d])
        image_gradient[window] += cotangent[0, i, j, d] * kernel[..., d]
        kernel_gradient[..., d] += cotangent[0, i, j, d] * images[window]
    ours, _ = ours_and_jaxs((1, 1), "VALID", (1, 1), feature_group_count=2)
    gradients = (image_gradient, kernel_gradient)
    assert_agrees_with_numpy(ours, images, kernel, cotangent, expected, gradients)


def test_other_options_are_passed_on_to_lax():
    images = jax.random.normal(jax.random.key(0), (4, 5, 5, 3))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 6))
    ours, reference = ours_and_jaxs((1, 1), "SAME", (1, 1), batch_group_count=2)
    np.testing.assert_array_equal(ours(images, kernel), reference(images, kernel))
    assert ours(images, kernel).shape == (2, 5, 5, 6)
    ours, _ = ours_and_jaxs((1, 1), "SAME", (1, 1), preferred_element_type=jnp.float32)
    assert ours(images.astype("bfloat16"), kernel.astype("bfloat16")).dtype == "float32"


def test_groups_that_do_not_divide_the_channels_are_refused():
    ours, _ = ours_and_jaxs((1, 1), "SAME", (1, 1), feature_group_count=3)
    with pytest.raises(ValueError, match="feature_group_count"):
        ours(jnp.ones((1, 5, 5, 4)), jnp.ones((3, 3, 2, 6)))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_grouped_convolution_has_the_same_flops_on_every_platform(groups):
    images, kernel = jnp.ones((2, 6, 6, 4)), jnp.ones((3, 3, 4 // groups, 8))
    counts = [
        model_flops(jax.grad(lambda x, k, f=f: jnp.sum(f(x, k) ** 2), (0, 1)), images, kernel)
        for f in ours_and_jaxs((1, 1), "SAME", (1, 1), feature_group_count=groups)
    ]
    assert counts == [3 * 2 * 2 * 36 * 8 * 9 * 4 // groups] * 2


@pytest.mark.parametrize("groups", [1, 2])
def test_second_derivatives_under_vmap_agree_with_lax(groups):
    ours, reference = ours_and_jaxs((1, 1), "SAME", (1, 1), feature_group_count=groups)
    images = jax.random.normal(jax.random.key(0), (3, 2, 6, 6, 2))
    kernels = jax.random.normal(jax.random.key(1), (3, 3, 3, 2 // groups, 2))

    def curvature(f):
        slope = jax.grad(lambda k, x: jnp.sum(f(x, k) ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    np.testing.assert_allclose(curvature(ours), curvature(reference), rtol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_other_platforms_keep_jaxs_gradients(platform, groups):
    ours, reference = ours_and_jaxs((1, 1), "SAME", (1, 1), feature_group_count=groups)
    images, kernel = jnp.ones((2, 8, 8, 4)), jnp.ones((3, 3, 4 // groups, 4))

    def layouts(f) -> list[str]:
        gradient = jax.grad(lambda x, k: jnp.sum(f(x, k) ** 2), (0, 1))
        text = lowered_text(gradient, images, kernel, platform=platform)
        return sorted(re.findall(r"stablehlo\.convolution.*?dim_numbers = (.*?), window", text))

    assert layouts(ours) == layouts(reference)
    assert len(layouts(ours)) == 3


def grouped(convolve, padding, groups):
    """A convolution as a function of images and kernel."""
    options = {"dimension_numbers": NHWC, "feature_group_count": groups}
    return lambda images, kernel: convolve(images, kernel, (1, 1), padding, **options)


def kernel_gradient(convolution, images, kernel, cotangent):
    return jax.vjp(lambda kernel: convolution(images, kernel), kernel)[1](cotangent)[0]


@pytest.mark.parametrize(
    ("size", "window", "padding", "groups", "padded"),
    [
        ((7, 7), (7, 7), "SAME", 6, (8, 8)),
        ((3, 9), (5, 5), "SAME", 6, (6, 9)),
        ((2, 2), (3, 3), ((1, 1), (2, 0)), 6, (4, 4)),
        ((8, 8), (7, 7), "SAME", 6, None),
        ((9, 9), (3, 3), "VALID", 6, None),
        ((7, 7), (7, 7), "SAME", 3, None),
        ((7, 7), (7, 7), "SAME", 1, None),
    ],
)
def test_gpus_pad_depthwise_gradients_of_images_as_small_as_the_kernel(
    size, window, padding, groups, padded
):
    """The cotangent, which is the kernel of that convolution, becomes larger than the gradient."""
    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (2, *size, 6))
    kernel = jax.random.normal(keys[1], (*window, 6 // groups, 6))
    reference = grouped(lax.conv_general_dilated, padding, groups)
    cotangent = jax.random.normal(keys[2], jax.eval_shape(reference, images, kernel).shape)
    ours = partial(kernel_gradient, grouped(conv_general_dilated, padding, groups))
    text = lowered_text(ours, images, kernel, cotangent, platform="cuda")
    operand = "x".join(map(str, (2, *(padded or cotangent.shape[1:3]), 6)))
    assert re.search(rf"stablehlo.convolution.*, tensor<{operand}xf32>\)", text)
    assert ("stablehlo.pad" in text) == (padded is not None)
    result = run_program_for_a_gpu(ours, images, kernel, cotangent)
    expected = kernel_gradient(reference, images, kernel, cotangent)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-5)
