"""Model FLOPs and bytes against figures worked out by hand, under every strategy and lowering."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import Mesh, PartitionSpec

from experiments.measure.flops import bytes_once, compare_flops, model_flops
from jaxcnn import models, ops, parallel, training
from jaxcnn.ops.convolution import NHWC

# Multiply-adds of one image, layer by layer: outputs times what each sums over.
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


def shapes(name: str, rows: int):
    state, step = training.create(models.build(name), optax.adam(1e-3))
    batch = {
        "image": jax.ShapeDtypeStruct((rows, *models.spec(name).input_shape), "float32"),
        "label": jax.ShapeDtypeStruct((rows,), "int32"),
    }
    return state, step, batch


@pytest.mark.parametrize(("name", "layers"), LAYERS.items())
def test_networks(name, layers):
    state, step, batch = shapes(name, 8)
    assert model_flops(step.evaluation, state, batch) == 2 * 8 * sum(layers)
    # backward, every layer costs twice as much as forward, but the first needs no gradient of the images
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
    once = 2 * 2 * side * side * 5 * 27
    assert model_flops(forward, images, kernel) == once
    assert model_flops(jax.grad(forward, (0, 1)), images, kernel) == 3 * once


def test_products_groups_loops_and_branches():
    a, b = jnp.ones((7, 2, 3)), jnp.ones((7, 3, 5))
    assert model_flops(jnp.matmul, a, b) == 2 * 7 * 2 * 3 * 5
    assert (
        model_flops(
            lambda x: lax.scan(lambda c, _: (c @ c, None), x, length=10)[0], jnp.ones((4, 4))
        )
        == 10 * 2 * 4**3
    )
    assert (
        model_flops(
            lambda p, x: lax.cond(p, lambda y: y @ y, lambda y: y, x), True, jnp.ones((4, 4))
        )
        == 2 * 4**3
    )
    grouped = (
        jax.eval_shape(lambda: jnp.ones((1, 4, 4, 6))),
        jax.eval_shape(lambda: jnp.ones((1, 1, 2, 9))),
    )

    def convolve(x, k):
        return lax.conv_general_dilated(
            x, k, (1, 1), "VALID", dimension_numbers=NHWC, feature_group_count=3
        )

    assert model_flops(convolve, *grouped) == 2 * 16 * 9 * 2


def test_unused_work_does_not_count():
    assert model_flops(lambda x: (x @ x, x)[1], jnp.ones((4, 4))) == 0


def test_an_unknown_length_is_refused():
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
        "the dearest branch": (
            lambda x: lax.switch(
                x[0, 0].astype(int), [lambda y: y, lambda y: y @ y @ y, lambda y: y @ y], x
            ),
            2,
        ),
        "remat, whose gradient does it again": (
            jax.value_and_grad(lambda x: jax.checkpoint(lambda y: jnp.sin(y @ y))(x).sum()),
            4,
        ),
        "vmap": (jax.vmap(jnp.matmul, (None, 0)), 7),
        "forward mode": (lambda x: jax.jvp(lambda y: y @ y, (x,), (x,)), 3),
        "an elementwise function": (jnp.tanh, 0),
    }.values(),
)
def test_each_product_counts_as_often_as_it_is_done(function, products):
    arguments = (SQUARE, shape(7, 4, 4)) if products == 7 else (SQUARE,)
    assert model_flops(function, *arguments) == products * PRODUCT


def test_custom_derivatives_count_what_they_do():
    @jax.custom_vjp
    def square(x):
        return x @ x

    square.defvjp(lambda x: (x @ x, x), lambda x, g: (g @ x @ x @ x,))
    assert model_flops(square, SQUARE) == PRODUCT
    assert (
        model_flops(jax.grad(lambda x: square(x).sum()), SQUARE) == 3 * PRODUCT
    )  # the forward product is of no use

    @jax.custom_jvp
    def cube(x):
        return x @ x @ x

    cube.defjvp(lambda x, t: (cube(*x), t[0] @ x[0]))
    assert model_flops(cube, SQUARE) == 2 * PRODUCT
    assert model_flops(lambda x: jax.jvp(cube, (x,), (x,)), SQUARE) == 3 * PRODUCT


def test_mapped_over_devices_the_whole_counts(devices):
    a, b = shape(16, 4), shape(4, 6)
    whole = 2 * 16 * 4 * 6
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))
    rows, columns = PartitionSpec("data"), PartitionSpec(None, "model")
    both = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(rows, columns), out_specs=PartitionSpec("data", "model")
    )
    one = jax.shard_map(
        jnp.matmul, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows, axis_names={"data"}
    )
    contracted = jax.shard_map(
        lambda a, b: lax.psum(a @ b, "model"), mesh=mesh, in_specs=(PartitionSpec("data", "model"), PartitionSpec("model")),
        out_specs=rows,
    )  # fmt: skip
    assert [model_flops(function, a, b) for function in (jnp.matmul, both, one, contracted)] == [
        whole
    ] * 4
    copied = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows)
    assert model_flops(copied, a, b) == 2 * whole  # each pair of devices does the same

    nested = jax.shard_map(
        lambda a, b: jax.shard_map(jnp.matmul, in_specs=(PartitionSpec(), columns), out_specs=columns, axis_names={"model"})(a, b),
        mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=rows, axis_names={"data"},
    )  # fmt: skip
    assert model_flops(nested, a, b) == whole
    assert model_flops(jax.pmap(jnp.matmul, in_axes=(0, None)), shape(8, 2, 4), b) == whole


@pytest.mark.parametrize("name", ["lenet5", "mlp:64"])
def test_every_strategy_counts_the_same(devices, name):
    state, step, batch = shapes(name, 16)
    expected = 2 * 16 * (3 * sum(LAYERS[name]) - LAYERS[name][0])
    for strategy in parallel.STRATEGIES:
        over = parallel.strategy(strategy, devices)
        images = {key: np.zeros(value.shape, value.dtype) for key, value in batch.items()}
        assert (
            model_flops(over.compile(step), over.place(state), over.place_batch(images)) == expected
        ), strategy
        evaluated = model_flops(
            over.compile_evaluation(step.evaluation), over.place(state), over.place_batch(images)
        )
        assert evaluated == 2 * 16 * sum(LAYERS[name]), strategy


def kernel(left, right, result):
    result[...] = left[...] @ right[...]


def tiled(rows: int, columns: int):
    return pl.pallas_call(
        kernel,
        grid=(rows, columns),
        in_specs=[
            pl.BlockSpec((8 // rows, 8), lambda i, j: (i, 0)),
            pl.BlockSpec((8, 8 // columns), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((8 // rows, 8 // columns), lambda i, j: (i, j)),
        out_shape=shape(8, 8),
        interpret=True,
    )


def test_a_kernel_counts_its_body_at_each_place_of_its_grid():
    assert model_flops(tiled(4, 2), shape(8, 8), shape(8, 8)) == 2 * 8**3
    assert model_flops(jax.vmap(tiled(2, 2)), shape(3, 8, 8), shape(3, 8, 8)) == 3 * 2 * 8**3


def test_what_hangs_on_values_is_refused():
    with pytest.raises(ValueError, match="groups whose sizes are not known"):
        model_flops(lax.ragged_dot, shape(8, 4), shape(2, 4, 3), shape(2, dtype="int32"))
    with pytest.raises(ValueError, match="length is not known"):
        model_flops(
            lambda x: lax.while_loop(lambda y: y[0, 0] < (y @ y)[0, 0], lambda y: y + 1, x), SQUARE
        )
    assert (
        model_flops(lambda n, x: lax.fori_loop(0, n, lambda i, y: y + 1, x), 3, SQUARE) == 0
    )  # no products, no question

    def of_grid(n, a, b):
        return pl.pallas_call(kernel, grid=(n,), out_shape=shape(4, 4), interpret=True)(a, b)

    with pytest.raises(ValueError, match="grid is not known"):
        model_flops(of_grid, shape(dtype="int32"), SQUARE, SQUARE)


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit, lambda f: jax.jit(jax.jit(f))])
@pytest.mark.parametrize(
    ("function", "sizes", "expected"),
    {
        "a product": (jnp.matmul, [(2, 3), (3, 5)], 4 * (6 + 15 + 10)),
        "unused": (lambda a, b: a + 1, [(7,), (9,)], 4 * (7 + 7)),
        "handed on": (lambda a, b: (b, a + 1, a), [(7,), (9,)], 4 * (7 + 7)),
        "read and handed on": (lambda a, b: (a, a + b), [(7,), (7,)], 4 * (7 + 7 + 7)),
        "a constant result": (lambda a: jnp.zeros(3), [(7,)], 4 * 3),
        "a reduction": (jnp.sum, [(100, 10)], 4 * (1000 + 1)),
    }.values(),
)
def test_what_is_used_and_what_results_moves_once(wrapped, function, sizes, expected):
    assert bytes_once(wrapped(function), *(shape(*size) for size in sizes)) == expected


def test_bytes_go_by_the_dtype():
    assert (
        bytes_once(
            lambda a, b: (a @ b).astype("int8"),
            shape(2, 3, dtype="bfloat16"),
            shape(3, 5, dtype="bfloat16"),
        )
        == 52
    )


@pytest.mark.parametrize("donate", [(), (0,)])
def test_bytes_of_a_training_step(donate):
    """Weights in and out, images and labels in, three metrics out; the factors of the rate and of the loss are read.

    The key and the count of finite steps have no use here, the step's number is read and written. Plain SGD keeps no state.
    """
    state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    batch = {"image": shape(32, 28, 28, 1), "label": shape(32, dtype="int32")}
    expected = 4 * (2 * 7850 + 32 * 784 + 32 + 3 + 2 + 2)
    assert bytes_once(jax.jit(step, donate_argnums=donate), state, batch) == expected


def test_three_sources_that_agree():
    check = compare_flops(jaxpr=1000, compiler=1150.0, closed_form=1000)
    assert (check.jaxpr, check.compiler, check.closed_form, check.disagreement) == (
        1000,
        1150.0,
        1000,
        "",
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        check.disagreement = "none"
    assert (
        compare_flops(jaxpr=1000).disagreement
        == compare_flops(jaxpr=0, compiler=0).disagreement
        == ""
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            {"jaxpr": 1000, "closed_form": 999},
            ["closed form has 999 FLOP, 0.1 % less than the jaxpr's 1000"],
        ),
        (
            {"jaxpr": 1000, "compiler": 100},
            ["compiler counts 100 FLOP, 90 % less than the jaxpr's 1000", "loop's body once"],
        ),
        (
            {"jaxpr": 1000, "compiler": 3000},
            ["compiler counts 3000 FLOP, 200 % more than the jaxpr's 1000", "element by element"],
        ),
        ({"jaxpr": 1000, "compiler": 1150, "tolerance": 0.1}, ["15 % more"]),
        ({"jaxpr": 0, "compiler": 64}, ["compiler counts 64 FLOP, more than the jaxpr's 0"]),
        (
            {"jaxpr": 1000, "compiler": 1, "closed_form": 1},
            ["closed form has 1 FLOP", "; the compiler counts 1 FLOP"],
        ),
    ],
)
def test_who_disagrees_by_how_much_and_why(counts, said):
    disagreement = compare_flops(**counts).disagreement
    assert all(part in disagreement for part in said), disagreement
