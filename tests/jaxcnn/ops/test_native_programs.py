"""Which programs call the compiled kernels, and which library of kernels they call."""

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
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.ops.native import loader
from tests.support.abstract import abstract_training
from tests.support.native import lowered_text, random_arrays, requires_kernels


def create_training(model: str, **options):
    """A training state and its step."""
    optimizer = training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    return training.create(models.build(model, **options), optimizer)


def mnist_batch():
    return {"image": jnp.zeros((2, 28, 28, 1)), "label": jnp.zeros(2, "int32")}


def convolve(images, kernel):
    return ops.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=NHWC)


def test_kernels_are_built_if_there_is_a_compiler():
    has_compiler = any(map(shutil.which, ("c++", "g++", "clang++")))
    assert native.instruction_set() or not has_compiler


def run_with_kernels(requested: str) -> subprocess.CompletedProcess:
    """Prints the instruction set in a process whose environment requests one."""
    program = "from jaxcnn.ops import native; print(native.instruction_set())"
    environment = os.environ | {native.ENVIRONMENT_VARIABLE: requested, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_environment_chooses_the_instruction_set():
    assert run_with_kernels("none").stdout == "None\n"
    message = "JAXCNN_KERNELS=avx3 is not an instruction set; use one of avx512, avx2, any"
    assert message in run_with_kernels("avx3").stderr
    for name in loader.INSTRUCTION_SETS:
        process = run_with_kernels(name)
        if loader.load_library(name):
            assert process.stdout == f"{name}\n"
        else:
            message = f"JAXCNN_KERNELS={name}: these kernels cannot be used: "
            assert message + loader.find_library(name).defect in process.stderr


def test_concurrent_calls_do_not_wait_for_one_another():
    """XLA runs branches of a program at the same time, on its few threads."""
    images, kernels = random_arrays((4, 16, 16, 32), (12, 3, 3, 32, 32))
    program = jax.jit(lambda x, ks: sum(convolve(x, k) for k in ks))
    expected = sum(
        lax.conv_general_dilated(images, k, (1, 1), "SAME", dimension_numbers=NHWC) for k in kernels
    )
    for _ in range(20):
        np.testing.assert_allclose(program(images, kernels), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("model", ["mnist_cnn", "resnet18_cifar", "vgg16"])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_train_steps_for_other_platforms_contain_no_cpu_lowering(model, platform):
    state, step = abstract_training(lambda: create_training(model, num_classes=10))
    side = models.spec(model).input_shape
    batch = {
        "image": jax.ShapeDtypeStruct((2, *side), "float32"),
        "label": jax.ShapeDtypeStruct((2,), "int32"),
    }
    text = lowered_text(step, state, batch, platform=platform)
    assert native.CALL_PREFIX not in text and "stablehlo.while" not in text
    assert text.count("stablehlo.convolution") >= 3  # forward and gradients


@requires_kernels
def test_train_steps_for_the_cpu_call_the_kernels():
    text = lowered_text(*_step_and_arguments("mnist_cnn"))
    counts = {call: text.count(native.CALL_PREFIX + call) for call in loader.HANDLERS}
    # Two forward convolutions and one image gradient; the first layer needs none. Bias and ReLU
    # are not part of the calls, as they follow the pools.
    assert {call: count for call, count in counts.items() if count} == {
        "convolution": 3,
        "kernel_gradient": 2,
    }
    # Two large dense layers, of which the first needs no gradient of its inputs.
    assert lowered_text(*_step_and_arguments("mlp:1024")).count(native.CALL_PREFIX) == 5


def _step_and_arguments(model: str):
    state, step = create_training(model)
    return step, state, mnist_batch()


@requires_kernels
def test_programs_over_several_cpu_devices_call_no_kernels():
    if jax.device_count() < 2 or jax.default_backend() != "cpu":
        pytest.skip("needs two CPU devices")

    def text(device_count):
        strategy = parallel.strategy("data", jax.devices()[:device_count])
        state, step = create_training("mnist_cnn")
        arguments = strategy.place(state), strategy.place_batch(mnist_batch())
        return strategy.compile(step).lower(*arguments).as_text()

    assert native.CALL_PREFIX in text(1)
    assert native.CALL_PREFIX not in text(2)


@requires_kernels
def test_without_native_kernels_traces_the_same_function_again():
    arguments = random_arrays((2, 4, 4, 3), (3, 3, 3, 5))
    assert native.CALL_PREFIX in lowered_text(convolve, *arguments)
    with native.without_native_kernels():
        assert not native.available()
        assert native.CALL_PREFIX not in lowered_text(convolve, *arguments)
    assert native.CALL_PREFIX in lowered_text(convolve, *arguments)


@pytest.mark.parametrize(("check", "answer"), [("_ffi_version", -1), ("_digest", "other")])
def test_kernels_of_other_sources_or_for_a_newer_jaxlib_are_not_used(check, answer, monkeypatch):
    built = [name for name in loader.INSTRUCTION_SETS if loader.load_library(name)]
    monkeypatch.setattr(loader, check, lambda *_: answer)
    for name in built:
        with pytest.warns(UserWarning, match="install jaxcnn again"):
            assert loader.load_library(name) is None


def convolve_tanh(images, kernel):
    return convolve(jnp.tanh(images), kernel)


def compile_for_two_devices(sharding, images, kernel):
    """`convolve_tanh` over a batch in two halves; and the arguments of the compiled program."""
    axis_type = AxisType.Explicit if sharding == "explicit" else AxisType.Auto
    mesh = jax.make_mesh((2,), ("data",), axis_types=(axis_type,))
    batch, everywhere = PartitionSpec("data"), PartitionSpec()
    if sharding in ("checked", "unchecked"):
        function = jax.shard_map(
            convolve_tanh,
            mesh=mesh,
            in_specs=(batch, everywhere),
            out_specs=batch,
            check_vma=sharding == "checked",
        )
    else:
        function = convolve_tanh
        images = jax.device_put(images, NamedSharding(mesh, batch))
        kernel = jax.device_put(kernel, NamedSharding(mesh, everywhere))
    return jax.jit(function).lower(images, kernel).compile(), images, kernel


@requires_kernels
@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("sharding", ["explicit", "checked", "unchecked", "automatic"])
def test_images_on_two_devices(sharding):
    """Each device calls kernels for its own half, however the batch is divided."""
    images, kernel = random_arrays((4, 6, 6, 16), (3, 3, 16, 17))
    expected = convolve_tanh(images, kernel)
    compiled, images, kernel = compile_for_two_devices(sharding, images, kernel)
    np.testing.assert_allclose(compiled(images, kernel), expected, rtol=1e-5, atol=1e-5)
    text = compiled.as_text()
    assert native.CALL_PREFIX in text and " all-gather(" not in text


def test_results_without_kernels_are_the_same(monkeypatch):
    monkeypatch.setattr(dense, "MIN_KERNEL_SIZE", 0)
    arguments = random_arrays((2, 8, 8, 16), (3, 3, 16, 17), (17,), (16, 4))

    def value_and_gradients():
        def loss(images, kernel, bias, matrix):
            activations = ops.conv_relu(images, kernel, bias, (2, 2), "SAME")
            product = ops.dot_general(images, matrix, (((3,), (0,)), ((), ())))
            return jnp.sum(activations**2) + jnp.sum(product**2)

        return jax.tree.leaves(jax.value_and_grad(loss, (0, 1, 2, 3))(*arguments))

    with_kernels = value_and_gradients()
    monkeypatch.setattr(loader, "instruction_set", lambda: None)
    for value, reference in zip(with_kernels, value_and_gradients(), strict=True):
        atol = 1e-5 * float(jnp.abs(reference).max())
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=atol)
