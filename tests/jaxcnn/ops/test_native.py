"""Convolutions and products by our own kernels against `jax.lax` and NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcnn import ops
from jaxcnn.ops import dense, native
from jaxcnn.ops.convolution import NHWC
from tests.support.native import drawn, lowered, needed

WIDE = list(
    itertools.product(
        [(1, 1), (2, 3)],
        ["SAME", "VALID", ((2, 1), (0, 3))],
        [(1, 1), (2, 1)],
        [(3, 3), (2, 5), (1, 1)],
    )
)


def within(value, reference) -> bool:
    return np.max(np.abs(np.asarray(value) - reference)) <= 1e-5 * np.max(np.abs(reference))


@pytest.fixture(params=native.SETS)
def instructions(request, monkeypatch):
    """Calls of the kernels for one set of instructions, whichever is the fastest here."""
    library = native.loaded(request.param)
    if library is None:
        pytest.skip(f"no kernels for {request.param}: not built, or not this processor's")
    name = f"{native.CALLS}{request.param}$"
    for call, symbol in native.HANDLERS.items():
        jax.ffi.register_ffi_target(
            name + call, jax.ffi.pycapsule(getattr(library, symbol)), platform="cpu"
        )
    monkeypatch.setattr(native, "CALLS", name)


WINDOWS = {  # images [N, H, W, C], outputs, taps, strides, padding, dilation
    "few channels": ((2, 7, 7, 3), 5, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "strided": ((3, 9, 9, 17), 33, (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "many outputs": ((2, 10, 10, 20), 70, (5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1)),
    "taps apart": ((2, 8, 8, 16), 20, (3, 3), (1, 1), ((1, 1), (1, 1)), (2, 2)),
    "one tap": ((2, 9, 9, 40), 100, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "rows that no window uses": ((3, 6, 6, 9), 130, (4, 2), (3, 3), ((0, 0), (0, 0)), (1, 1)),
    "padding wider than the image": ((1, 3, 3, 40), 3, (7, 7), (2, 2), ((5, 5), (5, 5)), (1, 1)),
    "the same of few channels": ((2, 4, 4, 3), 3, (5, 5), (1, 1), ((4, 4), (4, 4)), (1, 1)),
    "windows apart": ((2, 13, 13, 4), 9, (2, 2), (3, 3), ((0, 0), (0, 0)), (1, 1)),
    "one number": ((1, 1, 1, 1), 1, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "deep": ((20, 1, 1, 600), 70, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "wide": ((1, 3, 250, 33), 18, (3, 3), (1, 2), ((1, 1), (2, 0)), (1, 1)),
    "wide, taps apart": ((1, 4, 260, 5), 18, (2, 3), (2, 1), ((1, 0), (3, 2)), (1, 2)),
    "all sides differ": ((2, 12, 9, 40), 4, (5, 3), (2, 1), ((1, 3), (0, 2)), (1, 2)),
    "small gradient": ((30, 16, 16, 3), 6, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "small gradient, wide": ((1, 8, 250, 3), 5, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "few rows by many": ((1, 1, 30, 400), 130, (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "large sums": ((2, 3, 5, 400), 700, (1, 2), (1, 1), ((0, 0), (1, 0)), (1, 1)),
    "many panels": ((2, 8, 9, 40), 300, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "many panels, strided": ((3, 9, 17, 20), 270, (3, 3), (1, 2), ((0, 1), (2, 1)), (1, 1)),
    "winograd": ((40, 6, 6, 64), 48, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "winograd, odd": ((5, 17, 15, 16), 65, (3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "winograd, padding differs": ((2, 30, 11, 33), 18, (3, 3), (1, 1), ((2, 0), (1, 2)), (1, 1)),
    "winograd, large sums": ((3, 6, 7, 192), 192, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "winograd, deep": ((2, 8, 8, 300), 20, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "winograd, 5x5": ((7, 12, 12, 24), 20, (5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1)),
    "winograd, 5x5, odd": ((3, 9, 14, 18), 70, (5, 5), (1, 1), ((0, 4), (1, 2)), (1, 1)),
}
WAYS = [(name, 0) for name in WINDOWS] + [
    (name, tile)
    for name, window in WINDOWS.items()
    if name.startswith("winograd")
    for tile in native.WINOGRAD[window[2]]
]


@pytest.mark.parametrize(("window", "tile"), WAYS)
def test_each_set_of_instructions(instructions, window, tile, monkeypatch):
    """Against `jax.lax`, with and without Winograd's way: a convolution, turned, with bias and ReLU, and the gradient by the kernel."""
    monkeypatch.setattr(native, "winograd_tile", lambda *_: tile)
    shape, outputs, taps, *rest = WINDOWS[window]
    images, kernel, bias = drawn(shape, (*taps, shape[3], outputs), (outputs,))

    def plain(images, kernel):
        strides, pads, dilation = rest
        return lax.conv_general_dilated(
            images, kernel, strides, pads, None, dilation, NHWC, precision="highest"
        )

    expected, backward = jax.vjp(plain, images, kernel)
    (cotangent,) = drawn(expected.shape)
    turned = jnp.transpose(kernel[::-1, ::-1], (0, 1, 3, 2))
    assert within(jax.jit(lambda x, k: native.convolution(x, k, *rest))(images, kernel), expected)
    assert within(
        jax.jit(lambda x, k: native.convolution(x, k, *rest, turned=True))(images, turned), expected
    )
    assert within(
        jax.jit(lambda x, k, b: native.conv_relu(x, k, b, *rest))(images, kernel, bias),
        jax.nn.relu(expected + bias),
    )
    gradient = jax.jit(lambda x, c: native.kernel_gradient(x, c, taps, *rest))(images, cotangent)
    assert within(gradient, backward(cotangent)[1])


@pytest.mark.parametrize("tile", [0, 2, 4])
def test_what_is_no_number_stays_none(instructions, tile, monkeypatch):
    """As `jnp.maximum` has it: a network that has diverged does not look as if it had not."""
    monkeypatch.setattr(native, "winograd_tile", lambda *_: tile)
    images, kernel, bias = drawn((1, 4, 4, 16), (3, 3, 16, 20), (20,))
    window = (1, 1), ((1, 1), (1, 1)), (1, 1)
    rectified = jax.jit(lambda x, k, b: native.conv_relu(x, k, b, *window))
    assert np.isnan(rectified(images, kernel, bias.at[3].set(np.nan))[..., 3]).all()
    assert np.isnan(rectified(images.at[0, 0, 0, 5].set(np.nan), kernel, bias)[0, 0, 0]).all()


@pytest.mark.parametrize(("tile", "taps"), [(2, (2, 3)), (3, (3, 3)), (4, (5, 5))])
def test_winograds_way_is_refused_for_other_windows(instructions, tile, taps, monkeypatch):
    monkeypatch.setattr(native, "winograd_tile", lambda *_: tile)
    images, kernel = drawn((1, 4, 4, 16), (*taps, 16, 20))
    with pytest.raises(jax.errors.JaxRuntimeError, match="3x3 taps side by side"):
        jax.jit(lambda x, k: native.convolution(x, k, (1, 1), ((1, 1), (1, 1)), (1, 1)))(
            images, kernel
        ).block_until_ready()


@needed
@pytest.mark.parametrize("transposed", [False, True])
def test_sums_of_nothing_are_refused(transposed):
    left, right = jnp.ones((0, 3) if transposed else (3, 0)), jnp.ones((0, 5))
    with pytest.raises(jax.errors.JaxRuntimeError, match="nothing is left to compute"):
        jax.jit(lambda a, b: native.product(a, b, transposed=(transposed, False)))(
            left, right
        ).block_until_ready()


@pytest.mark.parametrize("transposed", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    "shape",
    [
        (3, 5, 4),
        (130, 70, 200),
        (300, 600, 20),
        (20, 110, 2500),
        (200, 1100, 1500),
        (1, 40, 100),
        (300, 500, 2500),
    ],
)
def test_products(instructions, transposed, shape):
    rows, depth, columns = shape
    left, right = drawn(
        (depth, rows) if transposed[0] else (rows, depth),
        (columns, depth) if transposed[1] else (depth, columns),
    )
    found = jax.jit(lambda a, b: native.product(a, b, transposed=transposed))(left, right)
    first, second = (
        np.asarray(a, np.float64).T if turn else np.asarray(a, np.float64)
        for a, turn in zip((left, right), transposed, strict=True)
    )
    assert within(found, first @ second)


@pytest.mark.parametrize(("images", "tile"), [((99, 4, 4, 32), 4), ((99, 2, 6, 32), 2)])
def test_winograds_way_by_hand(images, tile):
    """Ones under ones: nine taps inside, six on a side, four in a corner, times 32 channels."""
    ones, kernel = jnp.ones(images), jnp.ones((3, 3, 32, 16))
    assert (
        native.winograd_tile("convolution", kernel.shape, (*images[:3], 16), (1, 1), (1, 1)) == tile
    )
    found = ops.conv_general_dilated(ones, kernel, (1, 1), "SAME", dimension_numbers=NHWC)
    inside = [[min(size, at + 2) - max(0, at - 1) for at in range(size)] for size in images[1:3]]
    np.testing.assert_allclose(found[7, :, :, 3], 32 * np.outer(*inside), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "kernel", "result", "strides", "dilation", "expected"),
    [  # multiplications, the transformed kernel's counted as 100 tiles (16 of a gradient), against 0.9 (0.6) of the definition's
        (
            "convolution",
            (3, 3, 16, 16),
            (16, 10, 10, 16),
            (1, 1),
            (1, 1),
            2,
        ),  # 16 * (400 + 100) or 36 * (144 + 100), of 14,400
        (
            "convolution",
            (3, 3, 16, 16),
            (60, 12, 12, 16),
            (1, 1),
            (1, 1),
            4,
        ),  # 16 * (2160 + 100) or 36 * (540 + 100)
        ("convolution", (3, 3, 15, 16), (60, 12, 12, 16), (1, 1), (1, 1), 0),  # few channels
        (
            "convolution",
            (3, 3, 16, 16),
            (3, 8, 8, 16),
            (1, 1),
            (1, 1),
            0,
        ),  # 16 * (48 + 100), of 1,728
        ("kernel_gradient", (3, 3, 16, 16), (3, 8, 8, 16), (1, 1), (1, 1), 4),  # 36 * (12 + 16)
        (
            "kernel_gradient",
            (3, 3, 16, 16),
            (90, 5, 5, 16),
            (1, 1),
            (1, 1),
            0,
        ),  # 16 * (810 + 16) or 36 * (360 + 16), of 20,250
        ("convolution", (3, 3, 16, 16), (60, 12, 12, 16), (2, 1), (1, 1), 0),
        ("convolution", (3, 3, 16, 16), (60, 12, 12, 16), (1, 1), (1, 2), 0),
        ("convolution", (3, 5, 16, 16), (60, 12, 12, 16), (1, 1), (1, 1), 0),
        ("convolution", (5, 5, 16, 16), (60, 12, 12, 16), (1, 1), (1, 1), 2),
        (
            "convolution",
            (5, 5, 16, 16),
            (1, 12, 12, 16),
            (1, 1),
            (1, 1),
            0,
        ),  # 36 * (36 + 100), of 3,600
    ],
)
def test_when_winograds_way_pays(call, kernel, result, strides, dilation, expected):
    assert native.winograd_tile(call, kernel, result, strides, dilation) == expected


@needed
@pytest.mark.parametrize("tile", [0, 2, 4])
def test_the_same_numbers_every_time(tile, monkeypatch):
    monkeypatch.setattr(native, "winograd_tile", lambda *_: tile)
    images, cotangent = drawn((8, 15, 15, 24), (8, 15, 15, 40))
    program = jax.jit(
        lambda x, c: native.kernel_gradient(x, c, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    )
    first = program(images, cotangent)
    for _ in range(5):
        np.testing.assert_array_equal(first, program(images, cotangent))


@pytest.mark.parametrize("examples", [3, 17])
@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), WIDE)
def test_many_channels_values_and_gradients(examples, strides, padding, dilation, window):
    images, kernel = drawn((examples, 12, 11, 16), (*window, 16, 18))
    ours, native = (
        lambda x, k, f=f: f(x, k, strides, padding, rhs_dilation=dilation, dimension_numbers=NHWC)
        for f in (ops.conv_general_dilated, lax.conv_general_dilated)
    )
    (expected, backward), (found, our_backward) = (
        jax.vjp(native, images, kernel),
        jax.vjp(ours, images, kernel),
    )
    (cotangent,) = drawn(expected.shape)
    for value, reference in zip(
        (found, *our_backward(cotangent)), (expected, *backward(cotangent)), strict=True
    ):
        assert np.max(np.abs(value - reference)) < 1e-5 * np.max(np.abs(reference))


def test_a_kernel_gradient_by_a_loop_in_numpy():
    rng = np.random.default_rng(0)
    images, cotangent = rng.normal(size=(2, 6, 5, 16)), rng.normal(size=(2, 4, 3, 17))
    expected = np.zeros((3, 3, 16, 17))
    for n, i, j in np.ndindex(2, 4, 3):
        expected += np.einsum("hwc,d->hwcd", images[n, i : i + 3, j : j + 3], cotangent[n, i, j])
    _, backward = jax.vjp(
        lambda k: ops.conv_general_dilated(
            jnp.float32(images), k, (1, 1), "VALID", dimension_numbers=NHWC
        ),
        jnp.zeros((3, 3, 16, 17)),
    )
    np.testing.assert_allclose(backward(jnp.float32(cotangent))[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("strides", "padding"), [((1, 1), "SAME"), ((2, 1), "VALID"), ((1, 2), ((1, 0), (2, 1)))]
)
def test_conv_relu_and_its_gradients(strides, padding):
    images, kernel, bias = drawn((2, 8, 9, 3), (3, 3, 3, 5), (5,))

    def expected(images, kernel, bias):
        return jax.nn.relu(
            lax.conv_general_dilated(images, kernel, strides, padding, dimension_numbers=NHWC)
            + bias
        )

    def ours(images, kernel, bias):
        return ops.conv_relu(images, kernel, bias, strides, padding)

    assert 0 < np.mean(expected(images, kernel, bias) == 0) < 1
    (value, backward), (found, our_backward) = (
        jax.vjp(f, images, kernel, bias) for f in (expected, ours)
    )
    (cotangent,) = drawn(value.shape)
    for got, reference in zip(
        (found, *our_backward(cotangent)), (value, *backward(cotangent)), strict=True
    ):
        np.testing.assert_allclose(got, reference, rtol=1e-5, atol=2e-5)


def test_conv_relu_twice_differentiated_and_mapped():
    images, kernels, bias = drawn((3, 2, 6, 6, 2), (3, 3, 3, 2, 4), (4,))

    def curvature(convolved):
        slope = jax.grad(lambda k, x: jnp.sum(convolved(x, k) ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    found = curvature(lambda x, k: ops.conv_relu(x, k, bias, (1, 1), "SAME"))
    native = curvature(
        lambda x, k: jax.nn.relu(
            lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC) + bias
        )
    )
    np.testing.assert_allclose(found, native, rtol=1e-3, atol=1e-3 * float(jnp.abs(native).max()))


def test_a_gradient_of_zero_is_zero():
    images, kernel = jnp.ones((1, 2, 2, 1)), jnp.zeros((1, 1, 1, 1))
    assert jax.grad(lambda b: ops.conv_relu(images, kernel, b, (1, 1), "SAME").sum())(
        jnp.zeros(1)
    ).tolist() == [0.0]
    assert jax.grad(lambda b: ops.conv_relu(images, kernel, b, (1, 1), "SAME").sum())(
        jnp.ones(1)
    ).tolist() == [4.0]


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5)])
def test_dense_products_and_their_gradients(shape, monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 0)
    inputs, kernel = drawn(shape, (5, 7))
    dims = (((inputs.ndim - 1,), (0,)), ((), ()))
    (value, backward), (found, our_backward) = (
        jax.vjp(lambda x, k, f=f: f(x, k, dims), inputs, kernel)
        for f in (lax.dot_general, ops.dot_general)
    )
    np.testing.assert_allclose(found, np.asarray(inputs) @ np.asarray(kernel), rtol=1e-5, atol=1e-5)
    (cotangent,) = drawn(value.shape)
    for got, reference in zip(our_backward(cotangent), backward(cotangent), strict=True):
        np.testing.assert_allclose(got, reference, rtol=1e-5, atol=1e-5)


def test_dense_products_twice_differentiated_and_mapped(monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 0)
    inputs, kernels = drawn((3, 4, 5), (3, 5, 7))

    def curvature(product):
        slope = jax.grad(lambda k, x: jnp.sum(jnp.tanh(product(x, k))))
        return jax.vmap(jax.grad(lambda x, k: jnp.sum(slope(k, x) ** 2)))(inputs, kernels)

    dims = (((1,), (0,)), ((), ()))
    found = curvature(lambda x, k: ops.dot_general(x, k, dims))
    np.testing.assert_allclose(found, curvature(lambda x, k: x @ k), rtol=1e-4, atol=1e-4)


def test_other_products_pass_through_to_lax():
    left, right = drawn((3, 4, 5), (3, 5, 7))
    dims = (((2,), (1,)), ((0,), (0,)))
    np.testing.assert_array_equal(
        ops.dot_general(left, right, dims), lax.dot_general(left, right, dims)
    )
    assert (
        ops.dot_general(
            left.astype("bfloat16"), right[0].astype("bfloat16"), (((2,), (0,)), ((), ()))
        ).dtype
        == "bfloat16"
    )
    assert native.CALLS not in lowered(lambda a, b: ops.dot_general(a, b, dims), left, right)
