"""Bytes that a call must move, compared with values worked out by hand."""

import jax
import jax.numpy as jnp
import optax
import pytest

from experiments.measure.flops import compulsory_bytes
from jaxcnn import models, training


def shape(*sizes: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit, lambda f: jax.jit(jax.jit(f))])
@pytest.mark.parametrize(
    ("function", "sizes", "expected"),
    {
        "a product": (jnp.matmul, [(2, 3), (3, 5)], 4 * (6 + 15 + 10)),
        "unused": (lambda a, b: a + 1, [(7,), (9,)], 4 * (7 + 7)),
        "passed through": (lambda a, b: (b, a + 1, a), [(7,), (9,)], 4 * (7 + 7)),
        "read and passed through": (lambda a, b: (a, a + b), [(7,), (7,)], 4 * (7 + 7 + 7)),
        "a constant result": (lambda a: jnp.zeros(3), [(7,)], 4 * 3),
        "a reduction": (jnp.sum, [(100, 10)], 4 * (1000 + 1)),
    }.values(),
)
def test_used_arguments_and_new_results_move_once(wrapped, function, sizes, expected):
    assert compulsory_bytes(wrapped(function), *(shape(*size) for size in sizes)) == expected


def test_bytes_depend_on_the_dtype():
    def product(a, b):
        return (a @ b).astype("int8")

    a, b = shape(2, 3, dtype="bfloat16"), shape(3, 5, dtype="bfloat16")
    assert compulsory_bytes(product, a, b) == 2 * (6 + 15) + 10


@pytest.mark.parametrize("donate", [(), (0,)])
def test_bytes_of_a_training_step(donate):
    """Weights in and out, images and labels in, three metrics out.

    The scale of the learning rate is read; the step number is read and written. The key, the scale
    of the loss and the count of finite steps are not used here. Plain SGD has no state.
    """
    state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    batch = {"image": shape(32, 28, 28, 1), "label": shape(32, dtype="int32")}
    expected = 4 * (2 * 7850 + 32 * 784 + 32 + 3 + 1 + 2)
    assert compulsory_bytes(jax.jit(step, donate_argnums=donate), state, batch) == expected
