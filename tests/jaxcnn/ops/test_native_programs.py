"""Which programs call our own kernels, and which kernels: those that were built, for this processor, or none."""

import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxcnn import models, ops, parallel, training
from jaxcnn.ops import dense, native
from jaxcnn.ops.convolution import NHWC
from tests.support.native import drawn, lowered, needed


def test_they_were_built_where_there_is_a_compiler():
    assert native.instruction_set() or not (
        shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    )


def test_what_the_environment_asks_for():
    def said(value: str) -> subprocess.CompletedProcess:
        program = "from jaxcnn.ops import native; print(native.instruction_set())"
        environment = os.environ | {native.VARIABLE: value, "JAX_PLATFORMS": "cpu"}
        return subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert said("none").stdout == "None\n"
    assert (
        "JAXCNN_KERNELS=avx3 is no set of instructions; known are avx512, avx2, any"
        in said("avx3").stderr
    )
    for name in native.SETS:
        answer = said(name)
        assert (
            answer.stdout == f"{name}\n"
            if native.loaded(name)
            else "were not built, or need another processor" in answer.stderr
        )


def test_several_at_once():
    """Branches of a program that XLA runs at the same time on its few threads do not wait for one another."""
    images, kernels = drawn((4, 16, 16, 32), (12, 3, 3, 32, 32))
    program = jax.jit(
        lambda x, ks: sum(
            ops.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC) for k in ks
        )
    )
    expected = sum(
        lax.conv_general_dilated(images, k, (1, 1), "SAME", dimension_numbers=NHWC) for k in kernels
    )
    for _ in range(20):
        np.testing.assert_allclose(program(images, kernels), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("model", ["mnist_cnn", "resnet18_cifar", "vgg16"])
@pytest.mark.parametrize("other", ["cuda", "tpu"])
def test_a_train_step_for_other_platforms_holds_none_of_it(model, other):
    state, step = training.create(
        models.build(model, num_classes=10),
        training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1),
    )
    side = models.spec(model).input_shape
    batch = {
        "image": jax.ShapeDtypeStruct((2, *side), "float32"),
        "label": jax.ShapeDtypeStruct((2,), "int32"),
    }
    text = lowered(step, state, batch, platform=other)
    assert native.CALLS not in text and "stablehlo.while" not in text
    assert text.count("stablehlo.convolution") >= 3  # forward, and gradients


@needed
def test_a_train_step_for_the_cpu_calls_it():
    state, step = training.create(
        models.build("mnist_cnn"),
        training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1),
    )
    batch = {"image": jnp.zeros((2, 28, 28, 1)), "label": jnp.zeros(2, "int32")}
    text = lowered(step, state, batch)
    calls = [text.count(native.CALLS + call) for call in native.HANDLERS]
    assert calls == [
        3,
        0,
        2,
    ]  # the first convolution needs no gradient by the images; bias and ReLU come after the pools
    state, step = training.create(
        models.build("mlp:1024"),
        training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1),
    )
    assert (
        lowered(step, state, batch).count(native.CALLS) == 5
    )  # of two large layers, whose first needs no image gradient


@needed
def test_programs_over_several_devices_and_whatever_asks_for_it_leave_it_out():
    def texts(count):
        strategy = parallel.strategy("data", jax.devices()[:count])
        state, step = training.create(
            models.build("mnist_cnn"),
            training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1),
        )
        batch = {"image": jnp.zeros((2, 28, 28, 1)), "label": jnp.zeros(2, "int32")}
        return (
            strategy.compile(step)
            .lower(strategy.place(state), strategy.place_batch(batch))
            .as_text()
        )

    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        assert native.CALLS in texts(1) and native.CALLS not in texts(2)
    arguments = drawn((2, 4, 4, 3), (3, 3, 3, 5))

    def convolved(images, kernel):
        return ops.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=NHWC)

    assert native.CALLS in lowered(convolved, *arguments)
    with native.without_native_kernels():  # of the same function, which is traced anew
        assert not native.available() and native.CALLS not in lowered(convolved, *arguments)
    assert native.CALLS in lowered(convolved, *arguments)


def test_kernels_of_other_sources_or_for_a_newer_jaxlib_are_left_out(monkeypatch):
    built = [name for name in native.SETS if native.loaded(name)]
    for stale in ("_interface", "_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(
                native,
                stale,
                lambda *_, answer={"_interface": -1, "_digest": "other"}[stale]: answer,
            )
            for name in built:
                with pytest.warns(UserWarning, match="install again"):
                    assert native.loaded(name) is None


@needed
@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("way", ["explicit", "checked", "unchecked", "automatic"])
def test_images_on_two_devices(way):
    """However they were divided: left out where their type says so; where nobody can see it, right all the same."""
    mesh = jax.make_mesh(
        (2,), ("data",), axis_types=(AxisType.Explicit if way == "explicit" else AxisType.Auto,)
    )
    images, kernel = drawn((4, 6, 6, 16), (3, 3, 16, 17))

    def convolved(images, kernel):
        return ops.conv_general_dilated(
            jnp.tanh(images), kernel, (1, 1), "SAME", dimension_numbers=NHWC
        )

    function, expected = convolved, convolved(images, kernel)
    if way.endswith("checked"):
        specs = {
            "in_specs": (PartitionSpec("data"), PartitionSpec()),
            "out_specs": PartitionSpec("data"),
        }
        function = jax.shard_map(convolved, mesh=mesh, **specs, check_vma=way == "checked")
    else:
        images = jax.device_put(images, NamedSharding(mesh, PartitionSpec("data")))
        kernel = jax.device_put(kernel, NamedSharding(mesh, PartitionSpec()))
    compiled = jax.jit(function).lower(images, kernel).compile()
    np.testing.assert_allclose(compiled(images, kernel), expected, rtol=1e-5, atol=1e-5)
    assert (native.CALLS in compiled.as_text()) == (way in ("unchecked", "automatic"))


def test_where_it_is_not_there_the_numbers_are_the_same(monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 0)
    images, kernel, bias, matrix = drawn((2, 8, 8, 16), (3, 3, 16, 17), (17,), (16, 4))

    def values():
        def loss(images, kernel, bias, matrix):
            rectified = ops.conv_relu(images, kernel, bias, (2, 2), "SAME")
            return jnp.sum(rectified**2) + jnp.sum(
                ops.dot_general(images, matrix, (((3,), (0,)), ((), ()))) ** 2
            )

        return jax.value_and_grad(loss, (0, 1, 2, 3))(images, kernel, bias, matrix)

    found = values()
    monkeypatch.setattr(native, "instruction_set", lambda: None)
    for got, reference in zip(jax.tree.leaves(found), jax.tree.leaves(values()), strict=True):
        np.testing.assert_allclose(
            got, reference, rtol=1e-5, atol=1e-5 * float(jnp.abs(reference).max())
        )
