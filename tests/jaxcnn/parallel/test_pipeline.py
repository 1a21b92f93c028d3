"""The strategy `pipeline` computes what `jit` computes with the same microbatches."""

import itertools

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import models, parallel, training
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.mixing import Mixing
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout
from jaxcnn.models.residual import StochasticDepth
from jaxcnn.models.sequential import SequentialNetwork
from jaxcnn.models.shapes import flatten
from jaxcnn.parallel import packing, schedule, staged_network, stages
from tests.support.compiler_options import UNOPTIMIZED
from tests.support.small_networks import small_network

STEPS, BATCH_SIZE = 3, 16
FIELDS = ("params", "frozen", "ema_params", "model_state", "opt_state", "loss_scale", "step")
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 5e-3}


class SmallNet(SequentialNetwork):
    """Batch norm, dropout and stochastic depth, in six blocks that compile quickly."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense1 = nnx.Linear(64, 12, use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(12, rngs=rngs)
        self.depth = StochasticDepth(0.2, rngs=rngs)
        self.dense2 = nnx.Linear(12, 10, use_bias=False, rngs=rngs)
        self.norm2 = nnx.BatchNorm(10, rngs=rngs)
        self.dropout = Dropout(0.3, rngs=rngs)
        self.hidden = nnx.Linear(10, 12, rngs=rngs)
        self.out = nnx.Linear(12, 10, rngs=rngs)

    def sequence(self):
        first = (self.dense1, self.norm1, nnx.relu, self.depth)
        second = (self.dense2, self.norm2, nnx.relu, self.dropout)
        return (flatten, *first, *second, self.hidden, nnx.relu, self.out)


def plain_sgd(rate: float = 0.1, **options):
    return training.create(SmallNet(nnx.Rngs(0)), optax.sgd(rate, momentum=0.9), **options)


def full_recipe():
    """Everything that a step may have."""
    optimizer = training.optimizer(
        "adamw",
        0.01,
        "cosine",
        steps=9,
        steps_per_epoch=1,
        warmup=1,
        clip_norm=0.5,
        weight_decay=0.1,
    )
    return training.create(
        SmallNet(nnx.Rngs(0)),
        optimizer,
        preprocess=make_preprocess(("flip", "shift")),
        ema_decay=0.9,
        label_smoothing=0.1,
        mix=Mixing(mixup=0.4, cutmix=1.0),
        microbatches=4,
    )


def penalty_and_clipping():
    optimizer = training.optimizer(
        "momentum", 0.1, "constant", steps=9, steps_per_epoch=1, clip_norm=0.2
    )
    return training.create(SmallNet(nnx.Rngs(0)), optimizer, weight_decay=0.1, microbatches=2)


def by_name(optimizer: str):
    """A step with an optimizer that treats kernels, biases and layers in different ways."""
    built = training.optimizer(optimizer, 0.01, "constant", steps=9, steps_per_epoch=1)
    return training.create(SmallNet(nnx.Rngs(0)), built, microbatches=2)


STEPS_OF_EVERY_KIND = {
    "one microbatch": plain_sgd,
    "eight microbatches": lambda: plain_sgd(microbatches=8),
    "full recipe": full_recipe,
    "penalty and clipping": penalty_and_clipping,
    "last layers alone": lambda: plain_sgd(microbatches=2, trainable=("hidden", "out")),
    "bfloat16": lambda: plain_sgd(0.01, microbatches=2, precision="bfloat16"),
    "float16": lambda: plain_sgd(microbatches=2, precision="float16"),
    "muon": lambda: by_name("muon"),
    "lamb": lambda: by_name("lamb"),
    "speedrun": lambda: by_name("speedrun"),
}


def random_batches(shape=(8, 8, 1), count: int = STEPS) -> list[dict[str, np.ndarray]]:
    """Batches of which the last three rows are padding."""
    rng = np.random.default_rng(0)
    mask = np.ones(BATCH_SIZE, np.float32)
    mask[-3:] = 0
    return [
        {
            "image": rng.integers(0, 256, (BATCH_SIZE, *shape), np.uint8),
            "label": rng.integers(0, 10, BATCH_SIZE, np.int32),
            "mask": mask,
        }
        for _ in range(count)
    ]


def train(strategy: parallel.Strategy, state, step, batches):
    """The metrics of a few steps, the last state on the host, and the metrics of evaluation."""
    strategy = strategy.for_step(step, state, batches[0])
    strategy.options = UNOPTIMIZED
    placed, compiled, history = strategy.place(state), strategy.compile(step), []
    for batch in batches:
        placed, metrics = compiled(placed, strategy.place_batch(batch))
        history.append(metrics)
    evaluate = strategy.compile_evaluation(step.evaluation)
    history.append(evaluate(placed, strategy.place_batch(batches[0])))
    numbers = [{name: float(value) for name, value in row.items()} for row in history]
    return numbers, strategy.fetch(placed)


def assert_equal_states(state, expected, tolerance: float) -> None:
    for field in FIELDS:
        a, b = getattr(state, field), getattr(expected, field)
        assert jax.tree.structure(a) == jax.tree.structure(b), field
        for (path, leaf), other in zip(
            jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True
        ):
            assert leaf.shape == other.shape and leaf.dtype == other.dtype
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
            scale = float(np.max(np.abs(np.asarray(other, np.float32)), initial=1e-2))
            np.testing.assert_allclose(
                leaf,
                other,
                rtol=0,
                atol=tolerance * scale,
                err_msg=field + jax.tree_util.keystr(path),
            )


@pytest.fixture(scope="module")
def reference():
    """What `jit` computes, by the kind of step."""
    results: dict = {}

    def compute(kind: str):
        if kind not in results:
            strategy = parallel.strategy("jit")
            results[kind] = train(strategy, *STEPS_OF_EVERY_KIND[kind](), random_batches())
        return results[kind]

    return compute


@pytest.mark.parametrize(
    ("kind", "count"),
    [("full recipe", count) for count in (1, 2, 4)]
    + [(kind, 3) for kind in STEPS_OF_EVERY_KIND if kind != "full recipe"],
)
def test_steps_and_evaluation_are_those_of_one_device(kind, count, devices, reference):
    """Loss, penalty, parameters, averages, statistics, counters and optimizer state."""
    expected, expected_state = reference(kind)
    strategy = parallel.strategy("pipeline", devices[:count])
    history, state = train(strategy, *STEPS_OF_EVERY_KIND[kind](), random_batches())
    tolerance = TOLERANCE.get(kind, TOLERANCE["float32"])
    for metrics, expected_metrics in zip(history, expected, strict=True):
        assert metrics["count"] == BATCH_SIZE - 3
        assert metrics.keys() == expected_metrics.keys()
        assert metrics["loss"] == pytest.approx(expected_metrics["loss"], rel=tolerance)
    assert_equal_states(state, expected_state, 10 * tolerance)


def test_eight_stages(devices):
    """A chain of dense layers, given as an `nnx.Sequential`."""
    rngs = nnx.Rngs(0)
    sizes = [64, *[16] * 7]
    hidden = [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
    layers = [layer for linear in hidden for layer in (linear, jnp.tanh)]
    model = nnx.Sequential(flatten, *layers, nnx.Linear(16, 10, rngs=rngs))
    state, step = training.create(model, optax.adam(0.01), microbatches=4)
    expected, expected_state = train(parallel.strategy("jit"), state, step, random_batches())
    strategy = parallel.strategy("pipeline", devices)
    history, state = train(strategy, state, step, random_batches())
    for metrics, expected_metrics in zip(history, expected, strict=True):
        assert metrics == pytest.approx(expected_metrics, rel=2e-5)
    assert_equal_states(state, expected_state, 1e-3)  # Adam divides rounding errors


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lenet_like", 4),
        ("deep_mnist", 2),
        *(
            pytest.param(name, count, marks=pytest.mark.slow)
            for name, count in [
                ("resnet18_cifar", 4),
                ("mobilenet_v2", 4),
                ("speedrun_cnn", 4),
            ]
        ),
    ],
)
def test_gradients_and_statistics_of_networks(name, count, devices):
    network = small_network(name)
    results = []
    for strategy in (
        parallel.strategy("jit"),
        parallel.strategy("pipeline", devices[:count]),
    ):
        state, step = training.create(network.model, optax.sgd(1.0), microbatches=2)
        metrics, state = train(strategy, state, step, [network.batch])
        results.append((metrics, state))
    (expected, expected_state), (history, state) = results
    assert history[0]["loss"] == pytest.approx(expected[0]["loss"], rel=1e-4)
    assert_equal_states(state, expected_state, 1e-3)


def test_an_overflow_of_float16_changes_nothing_but_the_loss_scale(devices):
    """Of one microbatch in one stage; every device must know of it."""
    state, step = training.create(
        SmallNet(nnx.Rngs(0)), optax.sgd(0.1), precision="float16", microbatches=2
    )
    batch = random_batches()[0] | {"image": np.ones((BATCH_SIZE, 8, 8, 1), np.float32)}
    batch["image"][1] = 6e4
    state = state.replace(loss_scale=jnp.float32(2.0**24))
    _, after = train(parallel.strategy("pipeline", devices[:4]), state, step, [batch])
    jax.tree.map(np.testing.assert_array_equal, after.params, jax.device_get(state.params))
    assert float(after.loss_scale) == 2.0**23


def test_many_steps_in_one_dispatch_are_the_same_steps(devices):
    rng = np.random.default_rng(1)
    data = {
        "image": rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
        "label": rng.integers(0, 10, 40, np.int32),
    }
    feed, results = ResidentFeed(40, BATCH_SIZE), []
    for name in ("jit", "pipeline"):
        state, step = plain_sgd(microbatches=2)
        strategy = parallel.strategy(name, devices[:2]).for_step(step, state, random_batches()[0])
        strategy.options = UNOPTIMIZED
        run = strategy.compile(training.multi_step(step, feed), resident=True)
        evaluate = strategy.compile_evaluation(
            training.evaluate_dataset(step.evaluation, feed), resident=True
        )
        placed = strategy.place_data(data)
        after, metrics = run(strategy.place(state), placed, np.int32(feed.capacity))
        sums = evaluate(after, placed, np.int32(37))
        results.append((jax.device_get((metrics, sums)), strategy.fetch(after).params))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *reversed(results)
    )


def test_nothing_is_compiled_after_the_first_step(devices):
    state, step = plain_sgd(microbatches=2)
    strategy = parallel.strategy("pipeline", devices[:2])
    strategy = strategy.for_step(step, state, random_batches()[0])
    strategy.options = UNOPTIMIZED
    placed = strategy.place(state)
    batches = [strategy.place_batch(batch) for batch in random_batches()]
    compiled = strategy.compile(step)
    compilations: list[str] = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for batch in batches:
            placed, _ = compiled(placed, batch)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compilations) == 1


@pytest.mark.parametrize("other", ["jit", "data", "pmap"])
def test_the_state_is_restored_by_any_other_strategy(other, devices, tmp_path):
    """Saved under `pipeline`, restored and trained under another one, and the other way."""
    batches, results = random_batches(), []
    for first, second in (("pipeline", other), (other, "pipeline"), ("jit", "jit")):
        state, step = plain_sgd()
        _, state = train(parallel.strategy(first, devices[:2]), state, step, batches[:1])
        checkpoints = training.Checkpoints(tmp_path / first / second, {"model": "small"})
        checkpoints.save(state, None, training.History())
        restored = checkpoints.restore(plain_sgd()[0])
        checkpoints.close()
        strategy = parallel.strategy(second, devices[:2])
        _, state = train(strategy, restored.state, step, batches[1:])
        results.append(state)
    for state in results[:2]:
        assert_equal_states(state, results[2], 1e-4)


def test_a_placed_state_comes_back_unchanged(devices):
    state, step = full_recipe()
    strategy = parallel.strategy("pipeline", devices[:4])
    strategy = strategy.for_step(step, state, random_batches()[0])
    assert_equal_states(strategy.fetch(strategy.place(state)), jax.device_get(state), 0)


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
    assert waiting / (number * 6) == pytest.approx(schedule.bubble(number, count))


def test_stages_have_about_equal_flops(devices):
    """ResNet-18 for 32×32 images: 0.56 GFLOP of products per image, in four stages."""
    model = nnx.eval_shape(lambda: models.build("resnet18_cifar"))
    step_of: list = []

    def create():
        state, step = training.create(models.build("resnet18_cifar"), optax.sgd(0.1))
        step_of.append(step)
        return state

    state = jax.eval_shape(create)
    batch = {"image": jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.uint8)}
    strategy = parallel.strategy("pipeline", devices[:4]).for_step(step_of[0], state, batch)
    assert strategy.network.stages[0][0] == 0
    assert strategy.network.stages[-1][1] == len(stages.sequence(model))
    images = jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32)
    costs = staged_network.costs(step_of[0].network, state, images, strategy.network.stages)
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
    steps: list = []

    def create():
        model = models.build(name, input_shape=(side, side, channels))
        state, step = training.create(model, optax.sgd(0.1), **options)
        steps.append(step)
        return state

    state = jax.eval_shape(create)
    (batch,) = random_batches((side, side, channels), 1)
    with pytest.raises(InputError, match=message):
        parallel.strategy("pipeline", devices[:count]).for_step(steps[0], state, batch)


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


@pytest.mark.parametrize(
    ("model", "message"),
    [
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


def test_a_batch_of_any_size_is_evaluated(devices):
    """Five images do not divide into two microbatches."""
    state, step = plain_sgd(microbatches=2)
    strategy = parallel.strategy("pipeline", devices[:2])
    strategy = strategy.for_step(step, state, random_batches()[0])
    strategy.options = UNOPTIMIZED
    batch = {name: rows[:5] for name, rows in random_batches()[0].items()}
    metrics = strategy.compile_evaluation(step.evaluation)(
        strategy.place(state), strategy.place_batch(batch)
    )
    assert float(metrics["loss"]) == pytest.approx(float(step.evaluation(state, batch)["loss"]))
