"""Pools of Flax and JAX within `fast_on_cpu` compute what they compute outside of it."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax import lax

import jaxcnn
from jaxcnn import training
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from tests.support.native import lowered_text

pytestmark = pytest.mark.standard_promotion  # Flax divides sums by integers

POOLS = {"max": nnx.max_pool, "average": nnx.avg_pool}
CASES = {  # images, window, strides, padding
    "side by side": ((2, 6, 8, 3), (2, 2), (2, 2), "VALID"),
    "rows that no window uses": ((2, 7, 9, 3), (2, 2), (2, 2), "VALID"),
    "overlapping": ((2, 9, 8, 3), (3, 3), (2, 2), "SAME"),
    "stride one": ((1, 6, 7, 2), (3, 2), (1, 1), "SAME"),
    "gaps": ((2, 9, 9, 2), (2, 1), (3, 2), "VALID"),
    "given padding": ((2, 8, 8, 2), (3, 3), (2, 2), ((1, 0), (0, 2))),
    "one axis": ((3, 20, 4), (4,), (3,), "SAME"),
    "three axes": ((2, 5, 6, 7, 3), (2, 3, 2), (2, 2, 1), "SAME"),
}


def fast(function):
    def marked(*arguments):
        with fast_on_cpu():
            return function(*arguments)

    return marked


def whole_numbers(shape, dtype="float32"):
    """Many values are equal, so that the choice among them matters."""
    return jnp.asarray(np.random.default_rng(0).integers(-3, 4, shape), dtype)


def pool_of(kind: str, window, strides, padding):
    return lambda images: POOLS[kind](images, window, strides, padding)


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_jax(kind, case):
    shape, *options = CASES[case]
    pool, images = pool_of(kind, *options), whole_numbers(shape)
    result, pull_back = jax.vjp(pool, images)
    cotangent = jnp.asarray(np.random.default_rng(1).normal(size=result.shape), jnp.float32)
    (gradient,) = pull_back(cotangent)

    def both(images):
        result, pull_back = jax.vjp(fast(pool), images)
        return result, pull_back(cotangent)[0]

    for values in (both(images), jax.jit(both)(images)):
        np.testing.assert_allclose(values[0], result, rtol=1e-6)
        np.testing.assert_allclose(values[1], gradient, rtol=1e-5, atol=1e-5)
    batched = jax.jit(jax.vmap(fast(pool)))(jnp.stack([images, -images]))
    np.testing.assert_allclose(batched[1], pool(-images), rtol=1e-6)
    _, tangent = jax.jvp(fast(pool), (images,), (jnp.ones_like(images),))
    np.testing.assert_allclose(tangent, jax.jvp(pool, (images,), (jnp.ones_like(images),))[1])


@pytest.mark.parametrize("kind", POOLS)
def test_half_precision_is_rounded_once(kind):
    images = whole_numbers((2, 9, 9, 3), "bfloat16")
    pool = pool_of(kind, (3, 3), (2, 2), "SAME")
    result, pull_back = jax.vjp(jax.jit(fast(pool)), images)
    exact, exact_pull_back = jax.vjp(pool, images.astype("float32"))
    cotangent = whole_numbers(result.shape, "bfloat16")
    assert result.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(result), exact, rtol=2**-8)
    (gradient,) = exact_pull_back(cotangent.astype("float32"))
    np.testing.assert_allclose(np.float32(pull_back(cotangent)[0]), gradient, rtol=2**-7, atol=2e-2)


def test_nan_reaches_the_windows_that_contain_it():
    images = whole_numbers((1, 6, 6, 1)).at[0, 2, 3, 0].set(jnp.nan)
    for window, strides in (((2, 2), (2, 2)), ((3, 3), (1, 1))):
        pool = pool_of("max", window, strides, "VALID")
        np.testing.assert_array_equal(jax.jit(fast(pool))(images), pool(images))


def test_a_cpu_program_has_slices_and_others_keep_jaxs_windows():
    pool = pool_of("max", (2, 2), (2, 2), "VALID")
    gradient = jax.grad(lambda images: fast(pool)(images).sum())
    images = jnp.ones((2, 4, 4, 3))
    assert "reduce_window" not in lowered_text(fast(pool), images)
    assert "select_and_scatter" not in lowered_text(gradient, images)
    assert "reduce_window" in lowered_text(fast(pool), images, platform="tpu")
    assert "select_and_scatter" in lowered_text(gradient, images, platform="tpu")
    # A GPU has JAX's gradient only of what is not marked.
    unmarked = jax.grad(lambda images: pool(images).sum())
    assert "select_and_scatter" in lowered_text(unmarked, images, platform="cuda")
    assert "select_and_scatter" not in lowered_text(gradient, images, platform="cuda")


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 1, 1), (2, 2, 1, 1), "VALID"),
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
        ),
        lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0), (2, 2), (0, 0), (0, 0))
        ),
        lambda x: lax.reduce_window(
            x.astype("int32"), 0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        ),
    ],
    ids=["over examples", "dilated", "nothing but padding", "integers"],
)
def test_other_windows_are_left_to_jax(pool):
    images = whole_numbers((4, 6, 6, 2))
    assert "reduce_window" in lowered_text(fast(pool), images)
    np.testing.assert_array_equal(jax.jit(fast(pool))(images), pool(images))


class Network(nnx.Module):
    """A tutorial's network: its pools are functions in `__call__`."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.out = nnx.Linear(4 * 5 * 5, 3, rngs=rngs)

    def __call__(self, images):
        x = nnx.max_pool(nnx.relu(self.conv(images)), (2, 2), strides=(2, 2))
        return self.out(x.reshape(len(x), -1))


def test_an_accelerated_model_has_fast_pools_and_is_of_the_users_class():
    plain, model = Network(nnx.Rngs(0)), Network(nnx.Rngs(0))
    images = whole_numbers((2, 10, 10, 1))

    def loss(model, images):
        return (model(images) ** 2).sum()

    assert jaxcnn.accelerate(jaxcnn.accelerate(model)) is model  # twice is once
    assert isinstance(model, Network) and type(model).__name__ == "Network"
    text = jax.jit(nnx.grad(loss)).lower(model, images).as_text()
    assert "select_and_scatter" not in text
    assert "select_and_scatter" in jax.jit(nnx.grad(loss)).lower(plain, images).as_text()
    expected = plain(images)
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), nnx.clone(model)):
        assert type(each) is type(model)
        np.testing.assert_allclose(each(images), expected, rtol=1e-4, atol=1e-5)


def test_a_train_step_of_a_users_network_has_fast_pools():
    model = Network(nnx.Rngs(0))
    batch = {"image": jnp.ones((2, 10, 10, 1)), "label": jnp.zeros(2, jnp.int32)}
    for accelerate in (True, False):
        state, step = training.create(model, optax.sgd(0.1), accelerate=accelerate)
        assert ("select_and_scatter" in lowered_text(step, state, batch)) is not accelerate
    assert type(model) is Network  # the caller's model stays as it is


def test_linen_within_the_context():
    class LinenNetwork(linen.Module):
        @linen.compact
        def __call__(self, images):
            return linen.max_pool(linen.Conv(4, (3, 3))(images), (2, 2), (2, 2))

    network, images = LinenNetwork(), jnp.ones((2, 8, 8, 1))
    weights = network.init(jax.random.key(0), images)

    def loss(weights):
        return fast(network.apply)(weights, images).sum()

    assert "select_and_scatter" not in lowered_text(jax.grad(loss), weights)
