"""The members of ensembles, cross-validations and grids: how they differ from each other."""

import jax
import numpy as np
import pytest

from experiments.config import RunConfig
from experiments.studies import train_cases
from experiments.workloads import equivalence
from experiments.workloads.ensembles import build_members
from experiments.workloads.setup import build_setup
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

IMAGES = 160  # for training and validation


@pytest.fixture(scope="module")
def setup():
    config = RunConfig(
        model="logistic",
        dataset="synthetic:200",
        batch_size=16,
        epochs=2,
        strategy="jit",
        preset="full",
    )
    backend = Backend("cpu", tuple(jax.devices()[:1]))
    (case,) = train_cases.cases(config, backend)
    return build_setup(case.config, backend)


def test_folds_hold_out_every_image_once_and_do_not_train_on_it(setup):
    members = build_members("folds", 4, setup, 18)
    for member in members:
        assert len(member.held_out) == IMAGES // 4
        assert not set(member.rows.ravel()) & set(member.held_out)
    held_out = np.concatenate([member.held_out for member in members])
    assert sorted(held_out) == list(range(IMAGES))


def test_seeds_differ_in_weights_and_order(setup):
    first, second = build_members("seeds", 2, setup, 9)
    assert equivalence.largest_difference(first.state.params, second.state.params) > 0.1
    assert first.rows.tolist() != second.rows.tolist()
    assert equivalence.largest_difference(first.state.params, setup.state.params) == 0, (
        "the first member has the seed of the run"
    )


def test_rates_differ_only_in_the_learning_rate(setup):
    slow, fast = build_members("rates", 2, setup, 9)
    assert slow.rows.tolist() == fast.rows.tolist()
    assert equivalence.largest_difference(slow.state.params, fast.state.params) == 0
    assert float(fast.state.lr_scale / slow.state.lr_scale) == pytest.approx(128)  # 1/16 to 8
    assert fast.learning_rate == pytest.approx(8 * setup.config.learning_rate)


def test_too_many_folds_are_rejected(setup):
    with pytest.raises(InputError, match="160 training images are too few for 161 folds"):
        build_members("folds", IMAGES + 1, setup, 9)


def test_every_member_of_a_network_that_whitens_is_whitened():
    """The first layer of `speedrun_cnn` is computed from the images, and not trained."""
    config = RunConfig(
        model="speedrun_cnn",
        dataset="synthetic:100",
        batch_size=16,
        epochs=1,
        strategy="jit",
        preset="full",
    )
    backend = Backend("cpu", tuple(jax.devices()[:1]))
    (case,) = train_cases.cases(config, backend)
    setup = build_setup(case.config, backend)
    expected = setup.state.model_state["whitening"]["kernel"]
    for member in build_members("seeds", 2, setup, 6):
        kernel = member.state.model_state["whitening"]["kernel"]
        np.testing.assert_allclose(kernel, expected, atol=1e-5)
