"""Schedules and optimizers, compared with hand-worked numbers."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.errors import InputError
from jaxcnn.training.optimizer import OPTIMIZERS, optimizer, schedule

SIZES = {"steps": 1000, "steps_per_epoch": 10}


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "constant": {0: 8.0, 999: 8.0},
        "cosine": {0: 8.0, 250: 4 + 4 / np.sqrt(2), 500: 4.0, 1000: 0.0},
        "poly:4": {0: 8.0, 500: 8.0 / 16, 1000: 0.0},
        "step:30:0.1": {299: 8.0, 300: 0.8, 600: 0.08},
        "step:0.5:0.5": {4: 8.0, 5: 4.0},
        "milestones:0.5,0.5001:0.1": {499: 8.0, 500: 0.8, 501: 0.08},
        "milestones:0.4999,0.5:0.1": {499: 8.0, 500: 0.08},  # both at the same step
        "milestones:0.5,0.75:0.1": {499: 8.0, 500: 0.8, 749: 0.8, 750: 0.08},
    }.items(),
)
def test_schedules(name, expected):
    rates = schedule(name, 8.0, **SIZES)
    for step, rate in expected.items():
        assert float(rates(step) if callable(rates) else rates) == pytest.approx(
            rate, rel=1e-5, abs=1e-6
        ), step


def test_a_milestone_is_not_late_by_the_rounding_of_a_product():
    """0.55 × 100 is 55.00000000000001 in floating point."""
    rates = schedule("milestones:0.55:0.1", 8.0, steps=100, steps_per_epoch=10)
    assert float(rates(54)) == 8.0 and float(rates(55)) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        # 20 steps of warm-up: 8/20, 16/20, …, 8; then the schedule over the other 980 steps
        "constant": {0: 0.4, 1: 0.8, 18: 7.6, 19: 8.0, 20: 8.0, 999: 8.0},
        "cosine": {0: 0.4, 19: 8.0, 20: 8.0, 20 + 490: 4.0, 1000: 0.0},
        "poly:1": {9: 4.0, 20: 8.0, 20 + 245: 6.0},
        "step:30:0.1": {20: 8.0, 20 + 299: 8.0, 20 + 300: 0.8},
        "milestones:0.5:0.1": {20 + 489: 8.0, 20 + 490: 0.8},
    }.items(),
)
def test_a_warm_up_comes_before_the_schedule(name, expected):
    rates = schedule(name, 8.0, **SIZES, warmup=2)
    for step, rate in expected.items():
        assert float(rates(step)) == pytest.approx(rate, rel=1e-5, abs=1e-5), step


def test_a_warm_up_takes_at_least_one_step():
    rates = schedule("constant", 8.0, **SIZES, warmup=0.01)
    assert [float(rates(step)) for step in (0, 1, 2)] == [8.0, 8.0, 8.0]
    rates = schedule("constant", 8.0, **SIZES, warmup=0.2)
    assert [float(rates(step)) for step in (0, 1, 2)] == [4.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("warmup", "message"),
    [
        (-1, "warmup -1: must be a number of epochs"),
        (float("inf"), "warmup inf: must be"),
        (100, "warmup 100: the warm-up must be shorter than the 100 epochs"),
    ],
)
def test_a_warm_up_of_the_wrong_length_is_refused(warmup, message):
    with pytest.raises(InputError, match=message):
        schedule("cosine", 8.0, **SIZES, warmup=warmup)


@pytest.mark.parametrize(
    "name", ["cosin", "step:30", "poly:", "milestones:0.1", "milestones::0.1", "step:x:0.1", ""]
)
def test_an_unknown_schedule_lists_the_known_ones(name):
    with pytest.raises(
        InputError, match=f"unknown schedule '{name}'; known: constant, cosine, poly:POWER"
    ):
        schedule(name, 1.0, **SIZES)


def test_an_unknown_optimizer_suggests_the_nearest():
    with pytest.raises(InputError, match="unknown optimizer 'adma': did you mean 'adam'"):
        optimizer("adma", 0.1, "constant", **SIZES)


def weight_after_two_steps(name: str) -> float:
    """A weight of 1 after two steps at learning rate 0.1, with gradients 2 and then 1."""
    transformation = OPTIMIZERS[name](0.1)
    weight = jnp.array([1.0])
    state = transformation.init(weight)
    for gradient in (2.0, 1.0):
        update, state = transformation.update(jnp.array([gradient]), state, weight)
        weight += update
    return float(weight[0])


@pytest.mark.parametrize(
    ("name", "weight"),
    {
        "sgd": 1 - 0.1 * (2 + 1),
        "momentum": 1 - 0.1 * (2 + (0.9 * 2 + 1)),
        "nesterov": 1 - 0.1 * ((2 + 0.9 * 2) + (1 + 0.9 * (0.9 * 2 + 1))),
        # Kingma & Ba 2015: first moment 0.2 and second 0.004, both bias-corrected; then 0.28 / 0.19
        # and 0.004996 / 0.001999
        "adam": 1 - 0.1 * (1 + (0.28 / 0.19) / np.sqrt(0.004996 / 0.001999)),
        # running mean of the squares: 0.1 · 4, then 0.9 · 0.4 + 0.1
        "rmsprop": 1 - 0.1 * (2 / np.sqrt(0.4) + 1 / np.sqrt(0.46)),
        # the mean starts at 1, and 1 is added under the root: 0.9 + 0.4, then 0.9 · 1.3 + 0.1
        "rmsprop_1": 1 - 0.1 * (2 / np.sqrt(1.3 + 1) + 1 / np.sqrt(1.27 + 1)),
        # the same mean, and 0.9 of the first update in the second
        "rmsprop_momentum": 1 - 0.1 * (1.9 * 2 / np.sqrt(1.301) + 1 / np.sqrt(1.271)),
    }.items(),
)
@pytest.mark.standard_promotion  # Optax mixes integers and floats
def test_optimizers(name, weight):
    assert weight_after_two_steps(name) == pytest.approx(weight, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": math.nan}, "learning_rate nan: must be 0 or a positive number"),
        ({"learning_rate": -1.0}, r"learning_rate -1\.0: must be 0 or a positive number"),
        ({"weight_decay": math.inf}, "weight_decay inf: must be 0 or a positive number"),
        ({"steps": 0}, "steps 0, steps_per_epoch 1: both must be 1 or more"),
    ],
)
def test_numbers_that_are_not_allowed(changes, message):
    options = {"learning_rate": 0.1, "weight_decay": 0.0, "steps": 1} | changes
    rate = options.pop("learning_rate")
    with pytest.raises(InputError, match=message):
        optimizer("adamw", rate, "cosine", steps_per_epoch=1, **options)


def test_layers_of_a_decay_that_an_optimizer_does_not_have_are_refused():
    with pytest.raises(InputError, match="'sgd' has no decoupled weight decay"):
        optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1, weight_decay_layers=("out",))
