"""The strategy `pipeline` computes what `jit` computes with the same microbatches."""

import itertools

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.mixing import Mixing
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.models.shapes import flatten
from jaxcnn.training.objective import classification
from tests.support.small_networks import small_network
from tests.support.staged_training import (
    BATCH_SIZE,
    SmallNet,
    assert_equal_states,
    plain_sgd,
    random_batches,
    train,
)

TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 5e-3}


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


def test_an_objective_may_have_further_metrics(devices):
    """Here the labels below five, counted by NumPy."""

    def objective(outputs, batch):
        low = (batch["label"] < 5).astype(jnp.float32)
        return classification(outputs, batch) | {"low": jnp.sum(low * batch["mask"])}

    state, step = plain_sgd(microbatches=2, objective=objective)
    batch = random_batches()[0]
    history, _ = train(parallel.strategy("pipeline", devices[:2]), state, step, [batch])
    low = np.sum((batch["label"] < 5) & (batch["mask"] > 0))
    assert [row["low"] for row in history] == [low, low]


def test_many_steps_in_one_dispatch_are_the_same_steps(devices):
    rng = np.random.default_rng(1)
    data = {
        "image": rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
        "label": rng.integers(0, 10, 40, np.int32),
        "seed": np.uint32(0),
    }
    feed, results = ResidentFeed(40, BATCH_SIZE), []
    for name in ("jit", "pipeline"):
        state, step = plain_sgd(microbatches=2)
        strategy = parallel.strategy(name, devices[:2]).for_step(step, state, random_batches()[0])
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


def test_a_batch_of_any_size_is_evaluated(devices):
    """Five images do not divide into two microbatches."""
    state, step = plain_sgd(microbatches=2)
    strategy = parallel.strategy("pipeline", devices[:2])
    strategy = strategy.for_step(step, state, random_batches()[0])
    batch = {name: rows[:5] for name, rows in random_batches()[0].items()}
    metrics = strategy.compile_evaluation(step.evaluation)(
        strategy.place(state), strategy.place_batch(batch)
    )
    assert float(metrics["loss"]) == pytest.approx(float(step.evaluation(state, batch)["loss"]))


def test_without_a_cpu_the_state_is_created_on_the_first_device(devices, monkeypatch):
    """As under ``JAX_PLATFORMS=cuda``."""

    def no_cpu(*, backend):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", no_cpu)
    state, _ = parallel.strategy("pipeline", devices[1:3]).create(full_recipe)
    assert {leaf.devices().pop() for leaf in jax.tree.leaves(state)} == {devices[1]}
