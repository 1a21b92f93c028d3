"""Rules: which axis of which array is divided; what collides or does not divide is named."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from jaxcnn import models, parallel, training
from jaxcnn.errors import InputError
from jaxcnn.models.layers import ConvNorm
from jaxcnn.parallel import LargestAxis, Rule
from jaxcnn.parallel.mesh import mesh_shape
from jaxcnn.parallel.rules import TENSOR_RULES


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.block = ConvNorm(3, 16, rngs=rngs)
        self.hidden = nnx.Linear(16, 24, rngs=rngs)
        self.out = nnx.Linear(24, 10, rngs=rngs)

    def __call__(self, images):
        return self.out(self.hidden(jnp.mean(self.block(images), (1, 2))))


def build(optimizer: optax.GradientTransformation | None = None, **options):
    return training.create(Network(nnx.Rngs(0)), optimizer or optax.adam(0.1), **options)


def specs(strategy: parallel.Strategy, state) -> dict[str, tuple]:
    """The partition of each array that is divided, by its path."""
    shardings = jax.tree.leaves_with_path(strategy.state_shardings(state))
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): tuple(sharding.spec)
        for path, sharding in shardings
        if any(sharding.spec)
    }


def test_tensor_divides_output_channels_and_what_belongs_to_them(devices):
    """Ten classes cannot be shared by four devices; Adam's moments are as their parameters."""
    kernel = (None, None, None, "tensor")
    parameters = {
        "block.conv.kernel": kernel,
        "block.norm.bias": ("tensor",),
        "block.norm.scale": ("tensor",),
        "hidden.bias": ("tensor",),
        "hidden.kernel": (None, "tensor"),
    }
    expected = {
        f"{field}.{name}": spec
        for field in ("params", "ema_params", "opt_state.0.mu", "opt_state.0.nu")
        for name, spec in parameters.items()
    }
    expected |= {f"model_state.block.norm.{name}": ("tensor",) for name in ("mean", "var")}
    state, _ = build(ema_decay=0.9)
    assert specs(parallel.strategy("tensor", devices[:4]), state) == expected


def test_fsdp_divides_the_largest_axis_that_divides_of_arrays_that_are_large_enough(devices):
    """Of [3, 3, 3, 16] the 16, of [16, 24] the 24, of [24, 10] the 24; vectors are smaller."""
    rules = (Rule("", LargestAxis("data", min_size=200)),)
    state, _ = build(optax.sgd(0.1, momentum=0.9))
    parameters = {
        "block.conv.kernel": (None, None, None, "data"),
        "hidden.kernel": (None, "data"),
        "out.kernel": ("data",),
    }
    assert specs(parallel.strategy("fsdp", devices, rules=rules), state) == {
        f"{field}.{name}": spec
        for field in ("params", "opt_state.0.trace")
        for name, spec in parameters.items()
    }


def test_equal_axes_divide_the_last_one():
    assert LargestAxis("data", 1).spec((3, 3, 64, 64), 8) == P(None, None, None, "data")
    assert LargestAxis("data", 1).spec((3, 5), 8) == P()
    assert LargestAxis("data", 65).spec((8, 8), 8) == P()


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon", "rmsprop_momentum"])
def test_every_array_of_an_optimizer_is_divided_as_its_parameter(name, devices):
    state, _ = build(training.OPTIMIZERS[name](0.1))
    divided = specs(parallel.strategy("tensor", devices[:2]), state)
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.params)}
    arrays = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, leaf in jax.tree.leaves_with_path(state.opt_state)
        if leaf.shape in shapes
    ]
    assert arrays and {f"opt_state.{path}" for path in arrays} <= divided.keys()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ((Rule("n.kernel", P(None, "tensor")), Rule("hidden.k", P("tensor", None))),
         r"rules collide: hidden\.kernel \[16, 24\] matches 'n.kernel' .* and 'hidden.k'"),
        ((Rule("hidden.kernel", P("tensor", "tensor")),),
         r"hidden\.kernel \[16, 24\] over mesh axis 'tensor' twice"),
        ((Rule("out.kernel", P(None, "tensor")),),
         r"out\.kernel \[24, 10\] has an axis of 10, which the 4 devices of mesh axis tensor"),
        ((Rule("hidden.kernel", P(None, "model")),),
         r"hidden\.kernel \[16, 24\] over mesh axis 'model'; the mesh has tensor"),
        ((Rule("hidden.kernel", P("tensor")),),
         r"'hidden.kernel' .* matches hidden\.kernel \[16, 24\], which has 2 axes"),
        ((Rule("hiden.kernel", P(None, "tensor")),),
         r"'hiden.kernel' matches no parameter of the network, which has block.*hidden\.kernel"),
        ((Rule("hidden.kernel", P(None, "tensor"), "statistic"),),
         r"no statistic of the network, which has block\.norm\.mean, block\.norm\.var; correct"),
    ],
    ids=["collision", "axis twice", "indivisible", "unknown axis", "rank", "no match", "statistic"],
)  # fmt: skip
def test_a_rule_that_cannot_be_followed_is_an_error(rules, message, devices):
    state, _ = build()
    with pytest.raises(InputError, match=message):
        parallel.strategy("tensor", devices[:4], rules=rules).place(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("(", P()), r"rule '\(': not a valid regular expression"),
        (("kernel", P(), "params"), "unknown kind of rule 'params'"),
        (("kernel", (None, "tensor")), r"must be a jax.sharding.PartitionSpec or a LargestAxis"),
    ],
)
def test_a_rule_that_is_none(arguments, message):
    with pytest.raises(InputError, match=message):
        Rule(*arguments)


def test_rules_of_a_user_add_to_those_of_the_strategy(devices):
    rules = (*TENSOR_RULES, Rule("whitening", P(None, None, "tensor"), strict=False))
    state, _ = build()
    both = [specs(parallel.strategy("tensor", devices[:2], rules=r), state) for r in (rules, None)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("count", "text", "expected"),
    [
        (8, None, (4, 2)),
        (2, None, (1, 2)),
        (9, None, (3, 3)),
        (7, None, (1, 7)),
        (8, "8x1", (8, 1)),
    ],
)
def test_the_shape_of_a_mesh(count, text, expected):
    assert mesh_shape(("data", "tensor"), count, text) == expected


@pytest.mark.parametrize(
    ("name", "mesh", "message"),
    [
        ("data_tensor", "3x2", "needs 6 devices, and there are 8"),
        ("data_tensor", "8", "has 1 axes, but the strategy has 2: data x tensor"),
        ("data_tensor", "2×4", "give the number of devices along each axis, as in 2x4"),
        ("data_tensor", "0x8", "give the number of devices"),
        ("jit", "2x4", "'jit' has no mesh; choose data, fsdp, tensor, data_tensor"),
    ],
)
def test_a_mesh_that_does_not_match(name, mesh, message, devices):
    with pytest.raises(InputError, match=message):
        parallel.strategy(name, devices, mesh=mesh)


def test_batch_sizes_are_multiples_of_the_shares_of_the_batch(devices):
    parallel.strategy("data_tensor", devices, mesh="2x4").check_batch_size(6)
    parallel.strategy("tensor", devices).check_batch_size(7)
    with pytest.raises(InputError, match="multiple of 4, such as 8"):
        parallel.strategy("data_tensor", devices, mesh="4x2").check_batch_size(6)


def test_on_eight_devices_fsdp_holds_an_eighth_of_parameters_and_optimizer_state(devices):
    """Bytes of the compiled plan, by hand.

    Dense layers 3072 → 512 → 10: kernels of 1,572,864 and 5,120 elements are divided by 8, biases
    of 512 and 10 are not: 197,770 elements of 4 bytes, for parameters and both of Adam's moments.
    """
    elements = (3072 * 512 + 512 * 10) // 8 + 512 + 10
    batch = 16 // 8 * (32 * 32 * 3 * 4 + 4)  # images f32 and labels i32
    scalars = 4 * 5 + 8  # step, lr_scale, loss_scale, finite_steps, Adam's count; the key
    strategy = parallel.strategy("fsdp", devices)

    class Dense(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.hidden = nnx.Linear(3072, 512, rngs=rngs)
            self.out = nnx.Linear(512, 10, rngs=rngs)

        def __call__(self, images):
            return self.out(nnx.relu(self.hidden(images.reshape(len(images), -1))))

    state, step = strategy.create(lambda: training.create(Dense(nnx.Rngs(0)), optax.adam(0.1)))
    images = {"image": np.zeros((16, 32, 32, 3), np.float32), "label": np.zeros(16, np.int32)}
    program = strategy.compile(step).lower(state, strategy.place_batch(images)).compile()
    plan = program.memory_analysis()
    assert plan.argument_size_in_bytes == 3 * 4 * elements + batch + scalars
    assert plan.alias_size_in_bytes >= 3 * 4 * elements  # the new state takes the place of the old
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state.params))
    assert held == 4 * elements


def test_the_state_that_a_strategy_creates_is_that_of_one_device(devices):
    def build_lenet():
        return training.create(models.build("lenet_like"), optax.sgd(0.1), seed=3)

    expected, _ = build_lenet()
    for name in ("pmap", "fsdp", "data_tensor"):
        state, _ = parallel.strategy(name, devices).create(build_lenet)
        jax.tree.map(np.testing.assert_array_equal, state.params, expected.params)
