"""Convolutions that are fused with what follows them compute the same, and only they are fused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxcnn
from jaxcnn import ops, training
from jaxcnn.ops import native
from tests.support.fused_inference import ACTIVATIONS, CALLS, inference
from tests.support.native import lowered_text, requires_kernels


class Block(nnx.Module):
    """Convolution, batch norm and activation, of 20 channels; another convolution follows."""

    def __init__(self, activation, *, depthwise: bool = False, norm: bool = True, dtype=None):
        groups = 20 if depthwise else 1
        rngs = nnx.Rngs(0)
        self.first = nnx.Conv(
            20, 20, (3, 3), feature_group_count=groups, use_bias=not norm, dtype=dtype, rngs=rngs
        )
        self.norm = nnx.BatchNorm(20, dtype=dtype, rngs=rngs) if norm else None
        self.last = nnx.Conv(20, 4, (1, 1), dtype=dtype, rngs=rngs)
        self.activation = activation
        for each in (self.first.bias, self.norm and self.norm.bias, self.norm and self.norm.mean):
            if each is not None:
                each[...] = jnp.linspace(-1, 1, 20)
        if norm:
            self.norm.var[...], self.norm.scale[...] = (jnp.linspace(0.5, 2, 20) for _ in range(2))

    def __call__(self, images):
        x = self.first(images)
        x = self.norm(x) if self.norm else x
        return self.last(self.activation(x))


@requires_kernels
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depthwise", [False, True], ids=["dense", "depthwise"])
def test_batch_norm_and_every_activation(activation, depthwise):
    plain, fused, text = inference(Block(ACTIVATIONS[activation], depthwise=depthwise))
    name = "activated_depthwise" if depthwise else "activated_convolution"
    assert text.count(native.CALL_PREFIX + name) == 1
    assert not any(operation in text for operation in ("tanh", "erf", "logistic", "maximum"))
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_a_function_that_is_almost_gelu_is_not_fused():
    def scaled(x):
        return 0.5 * x * jax.lax.erfc(-x * np.float32(0.7))

    def reused(x):
        return nnx.gelu(x, approximate=False) + x

    for function in (scaled, reused):
        plain, fused, text = inference(Block(function))
        assert "erf" in text
        np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_a_bias_is_fused_and_other_functions_follow_it():
    plain, fused, text = inference(Block(nnx.relu, norm=False))
    assert text.count(CALLS) == 1
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)
    plain, fused, text = inference(Block(jnp.tanh, norm=False))
    assert text.count(CALLS) == 0  # XLA adds the bias in the pass of tanh
    np.testing.assert_allclose(fused, plain, rtol=1e-5)


@requires_kernels
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    plain, fused, _ = inference(Block(nnx.silu, dtype=dtype))
    assert fused.dtype == dtype
    error = np.abs(np.float32(fused) - np.float32(plain)).max()
    assert error <= 0.03 * np.abs(np.float32(plain)).max()


@requires_kernels
@pytest.mark.parametrize("depthwise", [False, True], ids=["dense", "depthwise"])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_the_other_branch_of_a_residual_block_is_added_in_the_same_pass(activation, depthwise):
    class Residual(Block):
        def __call__(self, images):
            return self.last(self.activation(self.norm(self.first(images)) + images))

    plain, fused, text = inference(Residual(ACTIVATIONS[activation], depthwise=depthwise))
    assert text.count(CALLS) == 1
    sums = [line for line in text.splitlines() if "stablehlo.add " in line]
    assert not any("tensor<2x9x8x20xf32>" in line for line in sums)
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
@pytest.mark.parametrize("is_first", [False, True])
def test_the_sum_of_two_convolutions_is_part_of_one_of_them(is_first):
    class Residual(Block):
        def __init__(self, activation):
            super().__init__(activation)
            self.shortcut = nnx.Conv(20, 20, (1, 1), rngs=nnx.Rngs(1))

        def __call__(self, images):
            if is_first:
                shortcut = self.shortcut(images)
                return self.last(nnx.relu(shortcut + self.norm(self.first(images))))
            x = self.norm(self.first(images))
            return self.last(nnx.relu(x + self.shortcut(images)))

    plain, fused, text = inference(Residual(nnx.relu))
    assert text.count(CALLS) == 2
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_what_is_summed_in_half_precision_is_not_fused():
    class Residual(Block):
        def __call__(self, images):
            return self.last(nnx.relu(self.first(images) + images.astype(jnp.bfloat16)))

    plain, fused, text = inference(Residual(nnx.relu, norm=False, dtype=jnp.bfloat16))
    assert text.count(CALLS) == 0
    error = np.abs(np.float32(fused) - np.float32(plain)).max()
    assert error <= 0.03 * np.abs(np.float32(plain)).max()


@requires_kernels
def test_what_has_another_use_is_not_fused():
    class Residual(Block):
        def __call__(self, images):
            first = self.first(images)
            return self.last(nnx.relu(self.norm(first)) + first)

    plain, fused, text = inference(Residual(nnx.relu))
    assert text.count(CALLS) == 0
    np.testing.assert_allclose(fused, plain, rtol=1e-5)


@requires_kernels
@pytest.mark.parametrize("size", [(3, 5), (17, 20)])
def test_the_mean_of_an_activation_over_pixels(size):
    """More than `channels.MAX_TERMS` pixels are summed row by row."""

    class Pooled(Block):
        def __call__(self, images):
            images = jax.image.resize(images, (2, *size, 20), "nearest")
            return jnp.mean(nnx.silu(self.norm(self.first(images))), (1, 2))

    plain, fused, text = inference(Pooled(None))
    assert text.count(CALLS) == 1 and native.CALL_PREFIX + "depthwise" in text
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


def test_what_a_pool_or_a_sum_reads_is_not_fused():
    class Pooled(Block):
        def __call__(self, images):
            return self.last(nnx.max_pool(nnx.relu(self.first(images)), (2, 2), (2, 2)))

    plain, fused, text = inference(Pooled(nnx.relu))
    assert CALLS not in text
    np.testing.assert_allclose(fused, plain, rtol=1e-5)


@requires_kernels
def test_an_own_function_with_a_known_name_is_not_mistaken_for_it():
    @jax.jit
    def silu(x):
        return x * jax.nn.sigmoid(2 * x)

    plain, fused, text = inference(Block(silu))
    assert text.count(CALLS) == 0
    np.testing.assert_allclose(fused, plain, rtol=1e-5)


def test_other_platforms_and_plain_convolutions_keep_their_operations():
    graph, state = nnx.split(jaxcnn.accelerate(Block(nnx.relu)))
    images = jnp.ones((2, 9, 8, 20))
    predict = ops.fuse_layers(lambda state, images: nnx.merge(graph, state)(images))
    assert "custom_call" not in lowered_text(predict, state, images, platform="tpu")

    def unmarked(images, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return nnx.relu(
            jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
        )

    text = lowered_text(ops.fuse_layers(unmarked), images, jnp.ones((3, 3, 20, 20)))
    assert native.CALL_PREFIX not in text


@requires_kernels
def test_evaluation_of_a_train_step_is_fused_and_can_be_differentiated():
    block = Block(nnx.silu)
    _, step = training.create(block, optax.sgd(0.1))
    state, _ = training.create(block, optax.sgd(0.1))
    images = jnp.asarray(np.random.default_rng(1).normal(size=(2, 9, 8, 20)), jnp.float32)
    assert CALLS in lowered_text(step.evaluation.outputs, state, images)
    plain, plain_step = training.create(block, optax.sgd(0.1), accelerate=False)
    np.testing.assert_allclose(
        step.evaluation.outputs(state, images),
        plain_step.evaluation.outputs(plain, images),
        rtol=1e-4,
        atol=1e-5,
    )

    def total(step, state, images):
        return step.evaluation.outputs(state, images).sum()

    np.testing.assert_allclose(
        jax.grad(total, 2)(step, state, images),
        jax.grad(total, 2)(plain_step, plain, images),
        rtol=1e-3,
        atol=1e-4,
    )
