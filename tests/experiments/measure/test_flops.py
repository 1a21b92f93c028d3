"""Model FLOPs compared with values worked out by hand, under every strategy and lowering."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import Mesh, PartitionSpec

from experiments.measure.flops import model_flops
from jaxcnn import models, ops, parallel, training
from jaxcnn.ops.conv_spec import NHWC

# Multiply-adds of one image, layer by layer: outputs times the terms of each sum.
LAYERS = {
    "logistic": [10 * 784],
    "mlp:64": [64 * 784, 64 * 64, 10 * 64],
    "lenet5": [28 * 28 * 6 * 25, 10 * 10 * 16 * 150, 120 * 400, 84 * 120, 10 * 84],
    "lenet_like": [30 * 30 * 6 * 9, 13 * 13 * 16 * 54, 120 * 576, 84 * 120, 10 * 84],
    "mnist_cnn": [26 * 26 * 32 * 9, 11 * 11 * 64 * 288, 128 * 1600, 10 * 128],
}


def shape(*sizes: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


SQUARE = shape(4, 4)
PRODUCT = 2 * 4**3


def abstract_step(name: str, rows: int):
    state, step = training.create(models.build(name), optax.adam(1e-3))
    batch = {
        "image": jax.ShapeDtypeStruct((rows, *models.spec(name).input_shape), "float32"),
        "label": jax.ShapeDtypeStruct((rows,), "int32"),
    }
    return state, step, batch


@pytest.mark.parametrize(("name", "layers"), LAYERS.items())
def test_networks_forward_and_backward(name, layers):
    state, step, batch = abstract_step(name, 8)
    assert model_flops(step.evaluation, state, batch) == 2 * 8 * sum(layers)
    # every layer costs twice as much backward as forward, but the first has no input gradient
    assert model_flops(step, state, batch) == 2 * 8 * (3 * sum(layers) - layers[0])


@pytest.mark.parametrize(
    ("stride", "padding"), [(1, "SAME"), (1, "VALID"), (2, "SAME"), (2, "VALID")]
)
@pytest.mark.parametrize("convolution", [ops.conv_general_dilated, lax.conv_general_dilated])
def test_each_gradient_of_a_convolution_costs_the_forward_pass(convolution, stride, padding):
    images, kernel = jnp.ones((2, 12, 12, 3)), jnp.ones((3, 3, 3, 5))

    def forward(x, k):
        return jnp.sum(convolution(x, k, (stride, stride), padding, dimension_numbers=NHWC) ** 2)

    side = {("SAME", 1): 12, ("VALID", 1): 10, ("SAME", 2): 6, ("VALID", 2): 5}[padding, stride]
    expected = 2 * 2 * side * side * 5 * 27
    assert model_flops(forward, images, kernel) == expected
    assert model_flops(jax.grad(forward, (0, 1)), images, kernel) == 3 * expected


def test_products_groups_loops_and_branches():
    a, b = jnp.ones((7, 2, 3)), jnp.ones((7, 3, 5))
    assert model_flops(jnp.matmul, a, b) == 2 * 7 * 2 * 3 * 5

    def loop(x):
        return lax.scan(lambda c, _: (c @ c, None), x, length=10)[0]

    def branch(predicate, x):
        return lax.cond(predicate, lambda y: y @ y, lambda y: y, x)

    assert model_flops(loop, SQUARE) == 10 * PRODUCT
    assert model_flops(branch, True, SQUARE) == PRODUCT

    def convolve(x, k):
        return lax.conv_general_dilated(
            x, k, (1, 1), "VALID", dimension_numbers=NHWC, feature_group_count=3
        )

    assert model_flops(convolve, shape(1, 4, 4, 6), shape(1, 1, 2, 9)) == 2 * 16 * 9 * 2


def test_unused_results_do_not_count():
    assert model_flops(lambda x: (x @ x, x)[1], jnp.ones((4, 4))) == 0


def test_a_loop_of_unknown_length_is_an_error():
    with pytest.raises(ValueError, match="length is not known"):
        model_flops(lambda n, x: lax.fori_loop(0, n, lambda i, y: y @ y, x), 3, np.ones((4, 4)))


@pytest.mark.parametrize(
    ("function", "products"),
    {
        "jit": (jax.jit(lambda x: x @ x), 1),
        "jit in jit, called twice": (
            lambda x: jax.jit(jnp.matmul)(x, jax.jit(jnp.matmul)(x, x)),
            2,
        ),
        "a scan of ten steps": (
            lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0],
            10,
        ),
        "a loop of known length": (lambda x: lax.fori_loop(0, 10, lambda _, c: c @ c, x), 10),
        "scans in scans": (
            lambda x: lax.scan(
                lambda c, _: (lax.map(lambda r: c @ r, jnp.stack([c] * 3))[0], 0), x, length=5
            )[0],
            15,
        ),
        "the gradient of a scan": (
            jax.grad(lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0].sum()),
            30,
        ),
        "the most expensive branch": (
            lambda x: lax.switch(
                x[0, 0].astype(int), [lambda y: y, lambda y: y @ y @ y, lambda y: y @ y], x
            ),
            2,
        ),
        "remat, whose gradient recomputes": (
            jax.value_and_grad(lambda x: jax.checkpoint(lambda y: jnp.sin(y @ y))(x).sum()),
            4,
        ),
        "vmap": (jax.vmap(jnp.matmul, (None, 0)), 7),
        "forward mode": (lambda x: jax.jvp(lambda y: y @ y, (x,), (x,)), 3),
        "an elementwise function": (jnp.tanh, 0),
    }.values(),
)
def test_each_product_counts_as_often_as_it_is_computed(function, products):
    arguments = (SQUARE, shape(7, 4, 4)) if products == 7 else (SQUARE,)
    assert model_flops(function, *arguments) == products * PRODUCT


def test_custom_derivatives_count_their_own_products():
    @jax.custom_vjp
    def square(x):
        return x @ x

    square.defvjp(lambda x: (x @ x, x), lambda x, g: (g @ x @ x @ x,))
    assert model_flops(square, SQUARE) == PRODUCT
    # the result of the forward product is not used
    assert model_flops(jax.grad(lambda x: square(x).sum()), SQUARE) == 3 * PRODUCT

    @jax.custom_jvp
    def cube(x):
        return x @ x @ x

    cube.defjvp(lambda x, t: (cube(*x), t[0] @ x[0]))
    assert model_flops(cube, SQUARE) == 2 * PRODUCT
    assert model_flops(lambda x: jax.jvp(cube, (x,), (x,)), SQUARE) == 3 * PRODUCT


def test_the_work_of_all_devices_counts(devices):
    a, b = shape(16, 4), shape(4, 6)
    total = 2 * 16 * 4 * 6
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))
    rows, columns = PartitionSpec("data"), PartitionSpec(None, "model")
    both = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(rows, columns), out_specs=PartitionSpec("data", "model")
    )
    one_axis = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows, axis_names={"data"}
    )
    contracted = jax.shard_map(
        lambda a, b: lax.psum(a @ b, "model"),
        mesh=mesh,
        in_specs=(PartitionSpec("data", "model"), PartitionSpec("model")),
        out_specs=rows,
    )
    for function in (jnp.matmul, both, one_axis, contracted):
        assert model_flops(function, a, b) == total
    replicated = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows
    )
    assert model_flops(replicated, a, b) == 2 * total  # each pair of devices computes the same

    def inner(a, b):
        return jax.shard_map(
            jnp.matmul, in_specs=(PartitionSpec(), columns), out_specs=columns, axis_names={"model"}
        )(a, b)

    nested = jax.shard_map(
        inner,
        mesh=mesh,
        in_specs=(rows, PartitionSpec()),
        out_specs=rows,
        axis_names={"data"},
    )
    assert model_flops(nested, a, b) == total
    assert model_flops(jax.pmap(jnp.matmul, in_axes=(0, None)), shape(8, 2, 4), b) == total


@pytest.mark.parametrize("name", ["lenet5", "mlp:64"])
def test_every_strategy_counts_the_same(devices, name):
    state, step, batch = abstract_step(name, 16)
    expected = 2 * 16 * (3 * sum(LAYERS[name]) - LAYERS[name][0])
    zeros = {key: np.zeros(value.shape, value.dtype) for key, value in batch.items()}
    for strategy_name in parallel.FOR_ANY_NETWORK:
        strategy = parallel.strategy(strategy_name, devices)
        placed = strategy.place(state), strategy.place_batch(zeros)
        assert model_flops(strategy.train_program(step), *placed) == expected, strategy_name
        evaluation = strategy.evaluation_program(step.evaluation)
        assert model_flops(evaluation, *placed) == 2 * 16 * sum(LAYERS[name]), strategy_name


def matmul_kernel(left, right, result):
    result[...] = left[...] @ right[...]


def tiled(rows: int, columns: int):
    return pl.pallas_call(
        matmul_kernel,
        grid=(rows, columns),
        in_specs=[
            pl.BlockSpec((8 // rows, 8), lambda i, j: (i, 0)),
            pl.BlockSpec((8, 8 // columns), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((8 // rows, 8 // columns), lambda i, j: (i, j)),
        out_shape=shape(8, 8),
        interpret=True,
    )


def test_a_kernel_counts_its_body_times_its_grid():
    assert model_flops(tiled(4, 2), shape(8, 8), shape(8, 8)) == 2 * 8**3
    assert model_flops(jax.vmap(tiled(2, 2)), shape(3, 8, 8), shape(3, 8, 8)) == 3 * 2 * 8**3


def test_products_whose_number_depends_on_values_are_an_error():
    with pytest.raises(ValueError, match="groups whose sizes are not known"):
        model_flops(lax.ragged_dot, shape(8, 4), shape(2, 4, 3), shape(2, dtype="int32"))
    with pytest.raises(ValueError, match="length is not known"):
        model_flops(
            lambda x: lax.while_loop(lambda y: y[0, 0] < (y @ y)[0, 0], lambda y: y + 1, x), SQUARE
        )

    def loop_without_products(n, x):
        return lax.fori_loop(0, n, lambda i, y: y + 1, x)

    assert model_flops(loop_without_products, 3, SQUARE) == 0

    def with_dynamic_grid(n, a, b):
        return pl.pallas_call(matmul_kernel, grid=(n,), out_shape=shape(4, 4), interpret=True)(a, b)

    with pytest.raises(ValueError, match="grid is not known"):
        model_flops(with_dynamic_grid, shape(dtype="int32"), SQUARE, SQUARE)
