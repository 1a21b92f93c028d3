"""Training on resident arrays: the same as the steps one by one, resumed, and what is refused."""

import functools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.errors import InputError
from jaxcnn.training.objective import classification, mask_of


class Net(nnx.Module):
    """A dense layer with batch norm for images of 2×2 pixels."""

    def __init__(self):
        self.dense = nnx.Linear(4, 3, use_bias=False, rngs=nnx.Rngs(0))
        self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))

    def __call__(self, images):
        return self.norm(self.dense(images.reshape(len(images), 4)))


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (37, 2, 2, 1), np.uint8)
LABELS = RNG.integers(0, 3, 37)  # int64, as NumPy has it


def prepare(name, devices, **options):
    state, step = training.create(Net(), optax.adam(0.01))
    strategy = parallel.strategy(name, devices)
    return state, parallel.resident_training(
        strategy, step, IMAGES, LABELS, batch_size=16, **options
    )


def config(loop, epochs=2, **options):
    return training.FitConfig(epochs=epochs, steps_per_epoch=loop.steps_per_epoch, **options)


def step_by_step(state, loop, epochs):
    """The state after steps on batches in the order of the feed, on one device."""
    compiled = jax.jit(loop.step)
    for number in range(epochs * 2):  # 37 examples are two batches of 16
        order = np.asarray(loop.feed.order(loop.data, np.int32(number)))
        rows = order[number % 2 * 16 :][:16]
        batch = {"image": IMAGES[rows], "label": LABELS[rows].astype(np.int32)}
        state, _ = compiled(state, batch)
    return jax.device_get(state)


@pytest.mark.parametrize("name", ["jit", "pmap", "data"])
def test_fit_takes_the_steps_of_one_device_and_evaluates_every_example(name, devices):
    state, loop = prepare(name, devices)
    assert loop.steps_per_epoch == 2
    run = loop.fit(state, loop.evaluator(IMAGES[:21], LABELS[:21]), config(loop))
    expected = step_by_step(state, loop, epochs=2)
    assert int(run.state.step) == 4 and len(run.history.epochs) == 2
    for field in ("params", "model_state"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            getattr(run.state, field),
            getattr(expected, field),
        )
    sums = loop.evaluator(IMAGES[:21], LABELS[:21])(loop.strategy.place(run.state))
    outputs = loop.step.evaluation.outputs(expected, IMAGES[:21])
    correct = int((np.argmax(outputs, axis=-1) == LABELS[:21]).sum())
    assert (float(sums["count"]), float(sums["correct"])) == (21, correct)


@pytest.mark.parametrize("count", [0, 6])
def test_only_examples_that_were_placed_are_evaluated(count, devices):
    state, loop = prepare("jit", devices)
    placed = loop.place_examples(IMAGES[:5], LABELS[:5])
    with pytest.raises(InputError, match=rf"{count} examples to evaluate: 5 are .* from 1 to 5"):
        loop.evaluate(loop.strategy.place(state), placed, count)


def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(devices, tmp_path):
    folder, identity = tmp_path / "run.checkpoints", {"network": "Net"}
    state, loop = prepare("jit", devices)
    evaluate = loop.evaluator(IMAGES, LABELS)
    whole = loop.fit(state, evaluate, config(loop, 3))
    for epochs in (1, 3, 3):  # the last session finds nothing left to do
        with training.Checkpoints(folder, identity) as checkpoints:
            run = loop.fit(state, evaluate, config(loop, epochs), checkpoints=checkpoints)
        assert len(run.history.epochs) == epochs
    assert run.history.sessions == 3
    for field in ("state", "best"):
        jax.tree.map(
            np.testing.assert_array_equal,
            getattr(run, field).params,
            getattr(whole, field).params,
        )
    with (
        training.Checkpoints(folder, {"network": "Other"}) as other,
        pytest.raises(InputError, match="network 'Net' there, 'Other' here"),
    ):
        loop.fit(state, evaluate, config(loop), checkpoints=other)


def test_a_later_stage_begins_with_the_best_weights_and_a_new_optimizer_state(devices):
    state, loop = prepare("jit", devices)
    run = loop.fit(state, loop.evaluator(IMAGES, LABELS), config(loop, 1, stages=2))
    assert int(run.state.step) == 4
    assert int(run.state.opt_state[0].count) == 2  # Adam's steps, of the second stage alone


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES / 255, LABELS, r"images are float64\[37, 2, 2, 1\]: they must be uint8"),
        (IMAGES[..., 0], LABELS, r"images are uint8\[37, 2, 2\]: they must be"),
        (IMAGES, LABELS[:36], r"labels are int64\[36\]: .* one for each of the 37 images"),
        (IMAGES, LABELS / 1, r"labels are float64\[37\]: they must be whole numbers"),
        (IMAGES, LABELS - 1, "label -1: labels must be class indices, counted from 0"),
        (IMAGES[:15], LABELS[:15], "batch size 16 is larger than the training set of 15 images"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(images, labels, message, devices):
    _, step = training.create(Net(), optax.adam(0.01))
    strategy = parallel.strategy("jit", devices)
    with pytest.raises(InputError, match=message):
        parallel.resident_training(strategy, step, images, labels, batch_size=16)


def test_a_batch_size_that_does_not_divide_is_refused(devices):
    _, step = training.create(Net(), optax.adam(0.01))
    strategy = parallel.strategy("data", devices)
    with pytest.raises(InputError, match=r"batch size 12 .* multiple of 8"):
        parallel.resident_training(strategy, step, IMAGES, LABELS, batch_size=12)


def test_auto_is_one_device_or_all(devices):
    assert isinstance(parallel.strategy("auto", devices), parallel.STRATEGIES["data"])
    assert isinstance(parallel.strategy("auto", devices[:1]), parallel.STRATEGIES["jit"])


def with_runner_up(outputs, batch):
    """The metrics of classification, and how often the label is the first or the second class."""
    _, first_two = jax.lax.top_k(outputs, 2)
    hits = jnp.any(first_two == batch["label"][:, None], axis=1).astype(jnp.float32)
    return classification(outputs, batch) | {"top2": jnp.sum(hits * mask_of(batch))}


@pytest.mark.parametrize("name", ["jit", "pmap"])
def test_an_objective_may_have_further_metrics(name, devices):
    state, step = training.create(Net(), optax.adam(0.01), objective=with_runner_up)
    strategy = parallel.strategy(name, devices)
    loop = parallel.resident_training(strategy, step, IMAGES, LABELS, batch_size=16)
    run = loop.fit(state, loop.evaluator(IMAGES[:21], LABELS[:21]), config(loop, 1))
    outputs = loop.step.evaluation.outputs(run.state, IMAGES[:21])
    hits = [label in order[1:] for label, order in zip(LABELS, np.argsort(outputs), strict=False)]
    (epoch,) = run.history.epochs
    assert epoch["validation_top2"] == pytest.approx(sum(hits) / 21)
    assert epoch["train_accuracy"] <= epoch["train_top2"] <= 1


def test_trainings_with_different_seeds_are_one_program(devices):
    orders, programs = [], []
    for seed in (0, 1):
        state, loop = prepare("jit", devices, seed=seed)
        orders.append(np.asarray(loop.feed.order(loop.data, np.int32(0))).tolist())
        programs.append(loop.train.lower(state, loop.data, np.int32(2)).as_text())
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    assert programs[0] == programs[1]


def test_steps_beyond_the_end_of_an_epoch_are_refused(devices):
    state, loop = prepare("jit", devices)
    placed = loop.strategy.place(state)
    for step, count, left in ((0, 3, 2), (1, 2, 1), (0, 0, 2)):
        with pytest.raises(InputError, match=f"{count} steps after step {step}: .* {left} left"):
            loop.run_steps(placed, step, count)


def test_a_state_that_was_trained_before_is_trained_for_as_many_epochs_more(devices):
    state, loop = prepare("jit", devices)
    evaluate = loop.evaluator(IMAGES, LABELS)
    first = loop.fit(state, evaluate, config(loop, epochs=1))
    second = loop.fit(first.state, evaluate, config(loop, epochs=2))
    assert int(second.state.step) == 6 and len(second.history.epochs) == 2
    expected = step_by_step(state, loop, epochs=3)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        second.state.params,
        expected.params,
    )
    half = first.state.replace(step=jnp.int32(1))
    with pytest.raises(InputError, match="1 steps, which are not whole epochs of 2"):
        loop.fit(half, evaluate, config(loop))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_is_an_unsigned_number_of_32_bits(seed, devices):
    with pytest.raises(InputError, match=f"seed {seed}: must lie between 0 and 4294967295"):
        prepare("jit", devices, seed=seed)


def test_the_states_of_an_interrupted_run_are_on_the_host(devices):
    state, loop = prepare("pmap", devices)

    class Stop:
        def on_dispatch(self, step, loss, steps, seconds):
            if step == 4:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_epoch(self, entry, best):
            pass

    with pytest.raises(training.Interrupted) as interrupted:
        loop.fit(state, loop.evaluator(IMAGES, LABELS), config(loop, epochs=9), watcher=Stop())
    for kept in (interrupted.value.state, interrupted.value.best):
        assert jax.tree.map(np.shape, kept.params) == jax.tree.map(np.shape, state.params)
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(kept.params))
