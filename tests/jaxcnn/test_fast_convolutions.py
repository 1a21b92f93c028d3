"""Convolutions in the context `fast_on_cpu`, in every form and program, compute what JAX's do."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax import lax

from jaxcnn import fast_layers, fast_on_cpu
from jaxcnn.ops import native
from tests.support.native import lowered_text, requires_kernels


def images(count: int = 4) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(count, 16, 14, 3)), jnp.float32)


def depthwise(images, kernel):
    return lax.conv_general_dilated(
        images,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images.shape[-1],
    )


def fast_depthwise(images, kernel):
    with fast_on_cpu():
        return depthwise(images, kernel)


@requires_kernels
def test_only_what_is_traced_within_the_context_calls_kernels():
    arguments = images(), jnp.ones((3, 3, 1, 3))
    assert native.CALL_PREFIX in lowered_text(fast_depthwise, *arguments)
    assert native.CALL_PREFIX not in lowered_text(depthwise, *arguments)


TRANSFORMATIONS = {
    "grad": lambda f: jax.grad(lambda x, k: (f(x, k) ** 2).sum(), (0, 1)),
    "jvp": lambda f: lambda x, k: jax.jvp(f, (x, k), (x + 1, k - 1)),
    "jacfwd of a gradient": lambda f: jax.jacfwd(
        jax.grad(lambda k, x: (f(x[:1, :4, :4], k) ** 3).sum()), 0
    ),
    "linear_transpose": lambda f: lambda x, k: jax.linear_transpose(lambda k: f(x, k), k)(f(x, k)),
    "vmap": lambda f: jax.vmap(lambda x, k: f(x[None], k), (0, None)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x, k: (f(x, k) ** 2).sum()), 1),
    "scan": lambda f: lambda x, k: lax.scan(lambda c, _: (f(c, k), c.sum()), x, None, length=3),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_jaxs_transformations_give_what_they_give_without_kernels(name):
    transform = TRANSFORMATIONS[name]
    kernel = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3, 1, 3)), jnp.float32)
    arguments = (kernel, images()) if name == "jacfwd of a gradient" else (images(), kernel)
    results = [jax.jit(transform(f))(*arguments) for f in (fast_depthwise, depthwise)]
    for value, expected in zip(*map(jax.tree.leaves, results), strict=True):
        atol = 1e-5 * float(jnp.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("padding", [((1, 1), (1, 1)), ((4, 4), (4, 4)), ((-1, 0), (0, -1))])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernels", ["native", "none"])
def test_many_groups_in_programs_that_no_kernel_can_compute(padding, dtype, kernels):
    """Wide or negative padding, half precision, no kernels: one convolution, not one per group."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 9, 8, 32)), dtype)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 1, 32)), dtype)

    def convolve(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, (2, 2), padding, None, None, ("NHWC", "HWIO", "NHWC"), 32
        )

    def value_and_gradients(x, kernel, context):
        def loss(x, kernel):
            with context():
                return (convolve(x, kernel).astype(jnp.float32) ** 2).sum()

        return jax.value_and_grad(loss, (0, 1))(x, kernel)

    disabled = native.without_native_kernels() if kernels == "none" else contextlib.nullcontext()
    with disabled:
        fast = jax.jit(value_and_gradients, static_argnums=2).lower(x, kernel, fast_on_cpu)
    assert fast.as_text().count("stablehlo.convolution") <= 3
    expected = jax.jit(value_and_gradients, static_argnums=2)(x, kernel, contextlib.nullcontext)
    for value, plain in zip(
        jax.tree.leaves(fast.compile()(x, kernel)), jax.tree.leaves(expected), strict=True
    ):
        value, plain = np.float32(value), np.float32(plain)
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(
            value, plain, rtol=tolerance, atol=tolerance * np.abs(plain).max()
        )


@requires_kernels
@pytest.mark.parametrize(
    ("taps", "groups", "padding"),
    [(1, 1, "VALID"), (3, 1, "VALID"), (3, 32, "VALID"), (2, 4, ((0, -3), (0, -4)))],
)
def test_gradients_call_kernels_if_no_window_uses_the_last_pixels(taps, groups, padding):
    """As in a shortcut of one tap and stride two over an even number of pixels."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 10, 12, 32)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(taps, taps, 32 // groups, 32)), jnp.float32)

    def loss(x, kernel):
        result = lax.conv_general_dilated(
            x, kernel, (2, 2), padding, None, None, ("NHWC", "HWIO", "NHWC"), groups
        )
        return (result**2).sum()

    def fast_loss(x, kernel):
        with fast_on_cpu():
            return loss(x, kernel)

    gradients = jax.jit(jax.grad(fast_loss, (0, 1)))
    if padding == "VALID":
        assert "stablehlo.convolution" not in gradients.lower(x, kernel).as_text()
    for value, expected in zip(
        gradients(x, kernel), jax.grad(loss, (0, 1))(x, kernel), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-3)


@requires_kernels
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32_by_kernels(dtype):
    """The error is that of rounding the result, whatever the number of products."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 8, 64)), dtype)
    kernel = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3, 64, 32)), dtype)

    def convolve(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def fast(x, kernel):
        with fast_on_cpu():
            return convolve(x, kernel)

    assert "stablehlo.convolution" not in lowered_text(fast, x, kernel)
    result = jax.jit(fast)(x, kernel)
    exact = convolve(x.astype(jnp.float32), kernel.astype(jnp.float32))
    assert result.dtype == dtype
    np.testing.assert_allclose(
        np.float32(result), exact, rtol=float(jnp.finfo(dtype).eps), atol=1e-4
    )


@requires_kernels
@pytest.mark.parametrize("axes", [1, 3])
def test_layers_over_one_and_three_axes(axes):
    """In training, against Flax's own layer."""
    size, taps = (9, 8, 7)[:axes], (3, 2, 5)[:axes]
    fast, plain = (
        kind(4, 6, taps, strides=(2, 1, 1)[:axes], rngs=nnx.Rngs(0))
        for kind in (fast_layers.Conv, nnx.Conv)
    )
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, *size, 4)), jnp.float32)

    def gradients(layer):
        return nnx.grad(lambda layer, x: (layer(x) ** 2).sum(), argnums=(0, 1))(layer, x)

    graph, state = nnx.split(fast)
    text = lowered_text(lambda state: gradients(nnx.merge(graph, state, copy=True)), state)
    assert "stablehlo.convolution" not in text and text.count(native.CALL_PREFIX) >= 3
    for value, expected in zip(
        jax.tree.leaves(gradients(fast)), jax.tree.leaves(gradients(plain)), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


@requires_kernels
@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR"])
@pytest.mark.parametrize(
    ("size", "taps", "strides", "dilation"),
    [
        ((7,), (3,), (2,), 1),
        ((6, 5), (3, 2), (2, 1), 1),
        ((6, 5), (3, 2), (1, 1), 2),
        ((6, 5), (2, 3), (2, 3), 2),
        ((4, 5, 3), (3, 2, 2), (2, 1, 3), 1),
    ],
)
def test_transposed_convolutions(size, taps, strides, dilation, padding):
    """Values and gradients, of images and weights, without XLA's convolutions."""
    fast, plain = (
        kind(
            4,
            6,
            taps,
            strides=strides,
            padding=padding,
            kernel_dilation=(dilation,) * len(size),
            rngs=nnx.Rngs(0),
        )
        for kind in (fast_layers.ConvTranspose, nnx.ConvTranspose)
    )
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, *size, 4)), jnp.float32)

    def value_and_gradients(layer):
        graph, state = nnx.split(layer)

        def loss(state, x):
            return (nnx.merge(graph, state)(x) ** 3).sum()

        return jax.jit(jax.value_and_grad(loss, (0, 1))), state

    function, state = value_and_gradients(fast)
    if dilation == 1 or max(strides) == 1:
        assert "stablehlo.convolution" not in function.lower(state, x).as_text()
    results = [function(state, x) for function, state in map(value_and_gradients, (fast, plain))]
    for value, expected in zip(*map(jax.tree.leaves, results), strict=True):
        atol = 1e-5 * float(jnp.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=atol)


@requires_kernels
def test_a_linen_network_in_the_context():
    conv = linen.Conv(6, (3, 3), feature_group_count=3)
    parameters = conv.init(jax.random.key(0), images())

    def apply(parameters):
        with fast_on_cpu():
            return conv.apply(parameters, images())

    assert native.CALL_PREFIX in lowered_text(apply, parameters)
    np.testing.assert_allclose(
        jax.jit(apply)(parameters), conv.apply(parameters, images()), rtol=1e-4, atol=1e-5
    )
