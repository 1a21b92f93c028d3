"""Convolutions and products by oneDNN against `jax.lax` and NumPy; where its calls are, and where they are not."""

import itertools
import platform

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxcnn import models, ops, parallel, training
from jaxcnn.ops import dense, onednn
from jaxcnn.ops.convolution import NHWC
from jaxcnn.ops.stored import stored

needed = pytest.mark.skipif(not onednn.available(), reason="this jaxlib has no oneDNN")
WIDE = list(itertools.product([(1, 1), (2, 3)], ["SAME", "VALID", ((2, 1), (0, 3))], [(1, 1), (2, 1)], [(3, 3), (2, 5), (1, 1)]))


def drawn(*shapes: tuple[int, ...]) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def lowered(function, *arguments, platform: str = "cpu") -> str:
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def test_jaxlib_for_linux_on_x86_has_it():
    assert onednn.available() or (platform.system(), platform.machine()) != ("Linux", "x86_64")


@pytest.mark.parametrize("examples", [3, 17])  # three are cut into strips
@pytest.mark.parametrize(("strides", "padding", "dilation", "window"), WIDE)
def test_many_channels_values_and_gradients(examples, strides, padding, dilation, window):
    images, kernel = drawn((examples, 12, 11, 16), (*window, 16, 18))
    ours, native = (
        lambda x, k, f=f: f(x, k, strides, padding, rhs_dilation=dilation, dimension_numbers=NHWC)
        for f in (ops.conv_general_dilated, lax.conv_general_dilated)
    )
    (expected, backward), (found, our_backward) = jax.vjp(native, images, kernel), jax.vjp(ours, images, kernel)
    (cotangent,) = drawn(expected.shape)
    for value, reference in zip((found, *our_backward(cotangent)), (expected, *backward(cotangent)), strict=True):
        assert np.max(np.abs(value - reference)) < 1e-5 * np.max(np.abs(reference))


def test_a_kernel_gradient_by_a_loop_in_numpy():
    rng = np.random.default_rng(0)
    images, cotangent = rng.normal(size=(2, 6, 5, 16)), rng.normal(size=(2, 4, 3, 17))
    expected = np.zeros((3, 3, 16, 17))
    for n, i, j in np.ndindex(2, 4, 3):
        expected += np.einsum("hwc,d->hwcd", images[n, i : i + 3, j : j + 3], cotangent[n, i, j])
    _, backward = jax.vjp(
        lambda k: ops.conv_general_dilated(jnp.float32(images), k, (1, 1), "VALID", dimension_numbers=NHWC),
        jnp.zeros((3, 3, 16, 17)),
    )
    np.testing.assert_allclose(backward(jnp.float32(cotangent))[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("strides", "padding"), [((1, 1), "SAME"), ((2, 1), "VALID"), ((1, 2), ((1, 0), (2, 1)))])
def test_conv_relu_and_its_gradients(strides, padding):
    images, kernel, bias = drawn((2, 8, 9, 3), (3, 3, 3, 5), (5,))

    def expected(images, kernel, bias):
        return jax.nn.relu(lax.conv_general_dilated(images, kernel, strides, padding, dimension_numbers=NHWC) + bias)

    def ours(images, kernel, bias):
        return ops.conv_relu(images, kernel, bias, strides, padding)

    assert 0 < np.mean(expected(images, kernel, bias) == 0) < 1
    (value, backward), (found, our_backward) = (jax.vjp(f, images, kernel, bias) for f in (expected, ours))
    (cotangent,) = drawn(value.shape)
    for got, reference in zip((found, *our_backward(cotangent)), (value, *backward(cotangent)), strict=True):
        np.testing.assert_allclose(got, reference, rtol=1e-5, atol=2e-5)


def test_conv_relu_twice_differentiated_and_mapped():
    images, kernels, bias = drawn((3, 2, 6, 6, 2), (3, 3, 3, 2, 4), (4,))

    def curvature(convolved):
        slope = jax.grad(lambda k, x: jnp.sum(convolved(x, k) ** 3))
        return jax.vmap(jax.grad(lambda k, x: jnp.sum(slope(k, x) ** 2)))(kernels, images)

    found = curvature(lambda x, k: ops.conv_relu(x, k, bias, (1, 1), "SAME"))
    native = curvature(lambda x, k: jax.nn.relu(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC) + bias))
    np.testing.assert_allclose(found, native, rtol=1e-3, atol=1e-3 * float(jnp.abs(native).max()))


def test_a_gradient_of_zero_is_zero():
    images, kernel = jnp.ones((1, 2, 2, 1)), jnp.zeros((1, 1, 1, 1))
    assert jax.grad(lambda b: ops.conv_relu(images, kernel, b, (1, 1), "SAME").sum())(jnp.zeros(1)).tolist() == [0.0]
    assert jax.grad(lambda b: ops.conv_relu(images, kernel, b, (1, 1), "SAME").sum())(jnp.ones(1)).tolist() == [4.0]


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5)])
def test_dense_products_and_their_gradients(shape, monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 0)
    inputs, kernel = drawn(shape, (5, 7))
    dims = (((inputs.ndim - 1,), (0,)), ((), ()))
    (value, backward), (found, our_backward) = (
        jax.vjp(lambda x, k, f=f: f(x, k, dims), inputs, kernel) for f in (lax.dot_general, ops.dot_general)
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
    np.testing.assert_array_equal(ops.dot_general(left, right, dims), lax.dot_general(left, right, dims))
    assert ops.dot_general(left.astype("bfloat16"), right[0].astype("bfloat16"), (((2,), (0,)), ((), ()))).dtype == "bfloat16"
    assert onednn.CALLS not in lowered(lambda a, b: ops.dot_general(a, b, dims), left, right)


@pytest.mark.parametrize("model", ["mnist_cnn", "resnet18_cifar", "vgg16"])
@pytest.mark.parametrize("other", ["cuda", "tpu"])
def test_a_train_step_for_other_platforms_holds_none_of_it(model, other):
    state, step = training.create(
        models.build(model, num_classes=10), training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    )
    side = models.spec(model).input_shape
    batch = {"image": jax.ShapeDtypeStruct((2, *side), "float32"), "label": jax.ShapeDtypeStruct((2,), "int32")}
    text = lowered(step, state, batch, platform=other)
    assert onednn.CALLS not in text and "stablehlo.while" not in text
    assert text.count("stablehlo.convolution") >= 3  # forward, and gradients


@needed
def test_a_train_step_for_the_cpu_calls_it():
    state, step = training.create(
        models.build("mnist_cnn"), training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    )
    batch = {"image": jnp.zeros((2, 28, 28, 1)), "label": jnp.zeros(2, "int32")}
    text = lowered(step, state, batch)
    assert (
        text.count(f"{onednn.CALLS}convolution") >= 4 and text.count(f"{onednn.CALLS}matmul") == 1
    )  # the first kernel's gradient
    state, step = training.create(
        models.build("mlp:1024"), training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    )
    assert (
        lowered(step, state, batch).count(f"{onednn.CALLS}matmul") == 5
    )  # of two large layers, whose first needs no image gradient


@needed
def test_programs_over_several_devices_and_whatever_asks_for_it_leave_it_out():
    def texts(count):
        strategy = parallel.strategy("data", jax.devices()[:count])
        state, step = training.create(
            models.build("mnist_cnn"), training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
        )
        batch = {"image": jnp.zeros((2, 28, 28, 1)), "label": jnp.zeros(2, "int32")}
        return strategy.compile(step).lower(strategy.place(state), strategy.place_batch(batch)).as_text()

    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        assert onednn.CALLS in texts(1) and onednn.CALLS not in texts(2)
    arguments = drawn((2, 4, 4, 3), (3, 3, 3, 5))

    def convolved(images, kernel):
        return ops.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=NHWC)

    with onednn.left_out():
        assert not onednn.available() and onednn.CALLS not in lowered(convolved, *arguments)
    assert onednn.CALLS in lowered(lambda *pair: convolved(*pair), *arguments)


@needed
@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("way", ["explicit", "checked", "unchecked", "automatic"])
def test_images_on_two_devices(way):
    """However they were divided: left out where their type says so; where nobody can see it, right all the same."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit if way == "explicit" else AxisType.Auto,))
    images, kernel = drawn((4, 6, 6, 16), (3, 3, 16, 17))

    def convolved(images, kernel):
        return ops.conv_general_dilated(jnp.tanh(images), kernel, (1, 1), "SAME", dimension_numbers=NHWC)

    function, expected = convolved, convolved(images, kernel)
    if way.endswith("checked"):
        specs = {"in_specs": (PartitionSpec("data"), PartitionSpec()), "out_specs": PartitionSpec("data")}
        function = jax.shard_map(convolved, mesh=mesh, **specs, check_vma=way == "checked")
    else:
        images = jax.device_put(images, NamedSharding(mesh, PartitionSpec("data")))
        kernel = jax.device_put(kernel, NamedSharding(mesh, PartitionSpec()))
    compiled = jax.jit(function).lower(images, kernel).compile()
    np.testing.assert_allclose(compiled(images, kernel), expected, rtol=1e-5, atol=1e-5)
    assert (onednn.CALLS in compiled.as_text()) == (way in ("unchecked", "automatic"))


def test_where_it_is_not_there_the_numbers_are_the_same(monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 0)
    images, kernel, bias, matrix = drawn((2, 8, 8, 16), (3, 3, 16, 17), (17,), (16, 4))

    def values():
        def loss(images, kernel, bias, matrix):
            rectified = ops.conv_relu(images, kernel, bias, (2, 2), "SAME")
            return jnp.sum(rectified**2) + jnp.sum(ops.dot_general(images, matrix, (((3,), (0,)), ((), ()))) ** 2)

        return jax.value_and_grad(loss, (0, 1, 2, 3))(images, kernel, bias, matrix)

    found = values()
    monkeypatch.setattr(onednn, "_works", lambda: False)
    for got, reference in zip(jax.tree.leaves(found), jax.tree.leaves(values()), strict=True):
        np.testing.assert_allclose(got, reference, rtol=1e-5, atol=1e-5 * float(jnp.abs(reference).max()))


@pytest.mark.parametrize("first", [1.0, np.nan, np.inf])
def test_what_is_stored_is_what_it_was(first):
    array = np.array([[first, -2.0], [0.0, 3.0]], np.float32)
    np.testing.assert_array_equal(jax.jit(stored)(array), array)
    np.testing.assert_array_equal(stored(jnp.arange(3)), [0, 1, 2])
    assert stored(jnp.zeros((0, 2))).shape == (0, 2)
    np.testing.assert_array_equal(jax.vmap(stored)(array), array)
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(stored(x) * array[1]))(jnp.ones(2)), array[1])


def test_what_is_stored_is_computed_once():
    """Not by each of its users: the compiled program has the maximum once, where plain JAX has it in both fusions."""

    def program(keep):
        def function(x):
            y = keep(jnp.maximum(x * 3, x))
            return jnp.transpose(y), y[::2].sum(0)

        text = jax.jit(function).lower(jnp.ones((256, 256))).compile().as_text()
        return text.count(" maximum(")

    assert program(stored) == 1 < program(lambda x: x)
