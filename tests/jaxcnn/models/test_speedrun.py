"""The first layer and the initial kernels of the network for short runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.models.speedrun import SpeedrunCNN, identity_init, whitening_kernel


def correlated_images() -> np.ndarray:
    """Images whose neighboring pixels and channels are alike, ``f32[32, 12, 12, 3]``."""
    noise = np.random.default_rng(0).normal(size=(32, 13, 13, 3))
    smooth = noise[:, 1:, 1:] + noise[:, :-1, 1:] + noise[:, 1:, :-1]
    return np.float32(smooth @ [[1, 0.5, 0], [0, 1, 0.5], [0.2, 0, 1]])


def test_whitened_patches_are_uncorrelated_and_have_unit_variance():
    images = correlated_images()
    kernel = whitening_kernel(images, epsilon=0)
    assert kernel.shape == (2, 2, 3, 24)
    outputs = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    first = np.asarray(outputs[..., :12]).reshape(-1, 12)
    np.testing.assert_allclose(first.T @ first / len(first), np.eye(12), atol=2e-3)
    np.testing.assert_array_equal(kernel[..., 12:], -kernel[..., :12])


def test_epsilon_limits_the_gain_of_directions_without_variance():
    gray = np.repeat(correlated_images()[..., :1], 3, axis=-1)  # two directions of color are zero
    kernel = whitening_kernel(gray, epsilon=0.01)
    gains = np.linalg.norm(np.asarray(kernel).reshape(12, 24), axis=0)
    np.testing.assert_allclose(gains.max(), 10, rtol=1e-4)


def test_the_first_filters_pass_a_channel_on_and_the_others_are_small():
    kernel = identity_init(jax.random.key(0), (3, 3, 4, 10))
    images = jax.random.normal(jax.random.key(1), (2, 6, 6, 4))
    outputs = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_array_equal(outputs[..., :4], images)
    bound = 1 / np.sqrt(3 * 3 * 4)  # of PyTorch's default
    assert 0.9 * bound < np.abs(kernel[..., 4:]).max() <= bound


def test_whitening_changes_only_the_first_kernel_which_is_not_trained():
    model = SpeedrunCNN((32, 32, 3), 10, rngs=nnx.Rngs(0))
    before = jax.tree.map(jnp.copy, nnx.state(model, nnx.Param))
    model.whiten(correlated_images())
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(model, nnx.Param))
    np.testing.assert_array_equal(
        model.whitening.kernel[...], whitening_kernel(correlated_images())
    )
    assert "whitening" not in nnx.to_pure_dict(nnx.state(model, nnx.Param))


def test_images_that_leave_no_pixels_are_an_input_error():
    model = SpeedrunCNN(num_classes=10, input_shape=(8, 8, 3), rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="too small"):
        model(jnp.zeros((2, 8, 8, 3)))
