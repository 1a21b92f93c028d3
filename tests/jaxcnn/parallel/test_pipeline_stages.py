"""How the strategy `pipeline` divides a network into stages, and its state among devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import models, parallel, training
from jaxcnn.data.mixing import Mixing
from jaxcnn.errors import InputError
from jaxcnn.models.sequential import SequentialNetwork
from jaxcnn.models.shapes import flatten
from jaxcnn.parallel import packing, schedule, staged_network, stages
from tests.support.staged_training import plain_sgd, random_batches


def test_a_device_has_the_parameters_of_its_own_stage(devices):
    """Four dense layers of 64×64 and an optimizer with one moment, on four devices."""
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(flatten, *(nnx.Linear(64, 64, rngs=rngs) for _ in range(4)))
    state, step = training.create(model, optax.sgd(0.1, momentum=0.9), microbatches=2)
    batch = {name: rows[:8] for name, rows in random_batches()[0].items()}
    strategy = parallel.strategy("pipeline", devices[:4]).for_step(step, state, batch)
    placed = strategy.place(state)
    layer = 64 * 64 + 64
    for field in ("params", "opt_state"):
        (buffer,) = jax.tree.leaves(getattr(placed, field))
        assert [shard.data.shape for shard in buffer.addressable_shards] == [(1, layer)] * 4
    plan = (
        strategy.compile(step)
        .lower(strategy.abstract_state(state), strategy.abstract_batch(batch))
        .compile()
        .memory_analysis()
    )
    whole = jax.jit(step, donate_argnums=0).lower(state, batch).compile().memory_analysis()
    images = 8 * 64
    small = 200  # labels, mask, key, counters
    assert 0 <= plan.argument_size_in_bytes - (2 * 4 * layer + images) < small
    assert 0 <= whole.argument_size_in_bytes - (4 * 2 * 4 * layer + images) < small
    assert plan.alias_size_in_bytes >= 2 * 4 * layer  # the state is donated


def test_microbatches_wait_as_gpipe_draws_it():
    """Huang et al. 2019, figure 2c, for three stages and four microbatches."""
    number, count = 3, 4

    def table(ticks, delay):
        rows = []
        for stage in range(number):
            entries = [schedule.microbatch(tick, delay(stage), count) for tick in range(ticks)]
            rows.append("".join(str(int(m)) if active else "." for m, active in entries))
        return rows

    assert schedule.forward_ticks(number, count) == 5
    assert table(6, lambda stage: stage) == ["0123..", ".0123.", "..0123"]
    assert schedule.backward_ticks(number, count) == 6
    assert table(6, lambda stage: number - 1 - stage) == ["..0123", ".0123.", "0123.."]
    waiting = sum(row.count(".") for row in table(6, lambda stage: number - 1 - stage))
    assert waiting / (number * 6) == pytest.approx((number - 1) / (count + number - 1))  # §2.3


def test_stages_have_about_equal_flops(devices):
    """ResNet-18 for 32×32 images: 0.56 GFLOP of products per image, in four stages."""
    model = nnx.eval_shape(lambda: models.build("resnet18_cifar"))
    state, step = parallel.abstract(
        lambda: training.create(models.build("resnet18_cifar"), optax.sgd(0.1))
    )
    batch = {"image": jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.uint8)}
    strategy = parallel.strategy("pipeline", devices[:4]).for_step(step, state, batch)
    assert strategy.network.stages[0][0] == 0
    assert strategy.network.stages[-1][1] == len(stages.sequence(model))
    images = jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32)
    costs = staged_network.costs(step.network, state, images, strategy.network.stages)
    assert max(costs) < 1.35 * sum(costs) / 4


@pytest.mark.parametrize(
    ("name", "count", "options", "message"),
    [
        ("googlenet_aux", 2, {}, "network GoogLeNet is not sequential, .* method sequence"),
        ("logistic", 2, {}, "LogisticRegression has 1 layers or blocks .* fewer than the 2 dev"),
        ("lenet5", 8, {}, "LeNet5 has 5 layers or blocks .* 8 devices .* at most 5 devices"),
        ("lenet5", 2, {"microbatches": 5}, "batch size 16 .* 5 microbatches: .* multiple of 5"),
        (
            "lenet5",
            2,
            {"microbatches": 16, "mix": Mixing(mixup=1.0)},
            "16 microbatches, each of whole pairs .* multiple of 32",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(name, count, options, message, devices):
    side = 80 if name == "googlenet_aux" else models.spec(name).input_shape[0]
    channels = models.spec(name).input_shape[2]
    state, step = parallel.abstract(
        lambda: training.create(
            models.build(name, input_shape=(side, side, channels)), optax.sgd(0.1), **options
        )
    )
    (batch,) = random_batches((side, side, channels), 1)
    with pytest.raises(InputError, match=message):
        parallel.strategy("pipeline", devices[:count]).for_step(step, state, batch)


class Tied(SequentialNetwork):
    """Two layers with one kernel."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(64, 64, rngs=rngs)
        self.second = nnx.Linear(64, 64, rngs=rngs)
        self.second.kernel = self.first.kernel

    def sequence(self):
        return flatten, self.first, self.second


class Hidden(SequentialNetwork):
    """A layer that its sequence does not show."""

    def __init__(self, rngs: nnx.Rngs):
        self.first, self.second = (nnx.Linear(64, 64, rngs=rngs) for _ in range(2))
        self.third = nnx.Linear(64, 10, rngs=rngs)

    def sequence(self):
        return flatten, self.first, self.second, lambda x: self.third(x)


class HiddenState(SequentialNetwork):
    """A layer without parameters but with state, that only a function of the sequence calls."""

    def __init__(self, rngs: nnx.Rngs, hidden: nnx.Module):
        self.first = nnx.Linear(64, 64, rngs=rngs)
        self.second = nnx.Linear(64, 10, rngs=rngs)
        self.hidden = hidden

    def sequence(self):
        return flatten, self.first, self.second, lambda x: self.hidden(x)


class Table(SequentialNetwork):
    """A layer with a plain array."""

    def __init__(self, rngs: nnx.Rngs):
        self.first, self.second = (nnx.Linear(64, 64, rngs=rngs) for _ in range(2))
        self.first.table = jnp.arange(12.0)

    def sequence(self):
        return flatten, self.first, self.second


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Table, r"network Table: first\.table is no flax\.nnx variable of one array"),
        (Tied, "network Tied: layer Linear of stage 2 shares an array with an earlier stage"),
        (Hidden, "network Hidden: its parameter third.* belongs to no layer of sequence"),
    ],
)
def test_parameters_that_belong_to_no_single_stage_are_refused(model, message, devices):
    state, step = training.create(model(nnx.Rngs(0)), optax.sgd(0.1))
    with pytest.raises(InputError, match=message):
        parallel.strategy("pipeline", devices[:2]).for_step(step, state, random_batches()[0])


def test_stages_are_needed_first(devices):
    state, step = plain_sgd()
    strategy = parallel.strategy("pipeline", devices[:2])
    for call in (lambda: strategy.place(state), lambda: strategy.compile(step)):
        with pytest.raises(InputError, match="no stages yet: use what its for_step"):
            call()


def test_padding_is_zero_and_shared_leaves_are_in_every_part():
    """Worked by hand: parts of 3 and 1 floats, and a counter that both have."""
    whole = {"a": np.float32([1, 2, 3]), "b": np.float32([[4]]), "n": np.int32(7)}
    shapes = jax.eval_shape(lambda: whole)
    parts = tuple({name: shapes[name] for name in names} for names in ("an", "bn"))
    packed = packing.Packing(shapes, parts)
    buffers = packed.pack(whole)
    assert {name: rows.tolist() for name, rows in buffers.items()} == {
        "float32": [[1, 2, 3], [4, 0, 0]],
        "int32": [[7], [7]],
    }
    jax.tree.map(np.testing.assert_array_equal, packed.unpack(buffers), whole)


@pytest.mark.parametrize(
    ("hidden", "path"),
    [
        (nnx.Dropout(0.5, rngs=nnx.Rngs(0)), r"hidden\.rngs\..*count"),
        (
            nnx.BatchNorm(10, use_scale=False, use_bias=False, rngs=nnx.Rngs(0)),
            r"hidden\.mean, hidden\.var",
        ),
    ],
    ids=["dropout", "batch norm"],
)
def test_a_function_may_not_change_what_no_layer_has(hidden, path, devices):
    """Its array would be zero in the second stage, and its change would be lost."""
    (batch,) = random_batches(count=1)
    state, step = training.create(HiddenState(nnx.Rngs(0), hidden), optax.sgd(0.1))
    with pytest.raises(InputError, match=f"stage 2 of strategy 'pipeline' changes {path}, which"):
        strategy = parallel.strategy("pipeline", devices[:2]).for_step(step, state, batch)
        strategy.compile(step)(strategy.place(state), strategy.place_batch(batch))
