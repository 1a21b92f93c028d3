"""Dense layers that are fused with what follows them compute the same, and only they are fused."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import ops
from jaxcnn.ops import dense
from tests.support.fused_inference import ACTIVATIONS, CALLS, inference
from tests.support.native import lowered_text, requires_kernels


class Dense(nnx.Module):
    """Two dense layers with an activation after the first."""

    def __init__(self, activation, width: int = 40, dtype=None):
        self.first = nnx.Linear(20, width, dtype=dtype, rngs=nnx.Rngs(0))
        self.last = nnx.Linear(width, 5, dtype=dtype, rngs=nnx.Rngs(1))
        self.first.bias[...] = jnp.linspace(-1, 1, width)
        self.activation = activation

    def __call__(self, images):
        return self.last(self.activation(self.first(images)))


@requires_kernels
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_dense_layer_and_every_activation(activation):
    plain, fused, text = inference(Dense(ACTIVATIONS[activation]))
    assert text.count(CALLS + "convolution") == 2
    names = ("dot_general", "tanh", "erf", "logistic", "maximum")
    assert not any(name in text for name in names)
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_a_large_dense_layer_is_what_numpy_computes(monkeypatch):
    monkeypatch.setattr(dense, "MIN_KERNEL_SIZE", 1)  # both layers have a kernel of their own
    model = Dense(nnx.relu)
    _, fused, text = inference(model)
    assert text.count(CALLS + "convolution") == 2 and "dot_general" not in text
    images = np.random.default_rng(0).normal(size=(2, 9, 8, 20))
    first, last = (
        (np.float64(each.kernel[...]), np.float64(each.bias[...]))
        for each in (model.first, model.last)
    )
    expected = np.maximum(images @ first[0] + first[1], 0) @ last[0] + last[1]
    np.testing.assert_allclose(fused, expected, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_the_other_branch_of_a_dense_residual_block():
    class Residual(Dense):
        def __call__(self, images):
            return self.last(self.activation(self.first(images) + images))

    plain, fused, text = inference(Residual(nnx.silu, width=20))
    assert text.count(CALLS) == 2
    sums = [line for line in text.splitlines() if "stablehlo.add " in line]
    assert not any("x20xf32>" in line for line in sums)
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


@requires_kernels
def test_a_product_with_a_transposed_or_a_batched_operand_is_not_fused():
    @ops.fuse_layers
    def predict(images, kernel, bias):
        return (
            nnx.relu(jnp.einsum("nk,mk->nm", images, kernel) + bias),
            nnx.relu(jnp.einsum("nk,nkm->nm", images, jnp.stack([kernel.T] * 2)) + bias),
        )

    images, kernel, bias = jnp.ones((2, 20)), jnp.ones((30, 20)), jnp.zeros(30)
    assert CALLS not in lowered_text(predict, images, kernel, bias)
    for result in predict(images, kernel, bias):
        assert result.tolist() == np.full((2, 30), 20.0).tolist()


@requires_kernels
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_large_dense_layers_in_half_precision(dtype, monkeypatch):
    monkeypatch.setattr(dense, "MIN_KERNEL_SIZE", 1)
    plain, fused, _ = inference(Dense(nnx.silu, dtype=dtype))
    assert fused.dtype == dtype
    error = np.abs(np.float32(fused) - np.float32(plain)).max()
    assert error <= 0.03 * np.abs(np.float32(plain)).max()
