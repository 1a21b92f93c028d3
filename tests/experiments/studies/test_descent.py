"""Three variants of gradient descent: steps by hand, the grid of costs, and the records."""

import itertools

import jax
import numpy as np
import pytest

from experiments import run
from experiments.studies import descent
from tests.support.records import read_records


def test_a_full_batch_step_by_hand():
    # At (0, 0) every probability is 1/2, so the gradients are the means of (1/2 - y) x and 1/2 - y.
    x, y = np.float32([1, 3]), np.float32([0, 1])
    path = jax.jit(descent.descend)(x, y, np.int32([[0, 1]]), np.float32([0, 0]), np.float32(2))
    np.testing.assert_allclose(path, [[0, 0], [2 * 0.5, 0]], atol=1e-7)


def test_single_sample_steps_by_hand():
    x, y = np.float32([1, 3]), np.float32([0, 1])
    rows = np.int32([[1], [0]])
    path = jax.jit(descent.descend)(x, y, rows, np.float32([0, 0]), np.float32(2))
    # First (1/2 - 1) times 3 and 1, then the other example, with a logit of 3 + 1.
    probability = 1 / (1 + np.exp(-4))
    expected = [[0, 0], [3, 1], [3 - 2 * probability, 1 - 2 * probability]]
    np.testing.assert_allclose(path, expected, rtol=1e-6)


def test_every_epoch_has_each_example_once():
    rows = descent.batch_rows(10, 5, 3, seed=1)
    assert [sorted(epoch.ravel()) for epoch in rows.reshape(3, 2, 5)] == [list(range(10))] * 3
    assert descent.batch_rows(10, 4, 1, seed=1).shape == (2, 4)
    assert not np.array_equal(descent.batch_rows(10, 5, 3, seed=2), rows)


def test_the_minimum_cost_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    x, y = descent.load_examples()
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, None], y)
    expected = log_loss(y, model.predict_proba(x[:, None]))
    assert descent.minimum_cost(x, y) == pytest.approx(expected, abs=1e-6)


def test_the_grid_has_a_row_of_costs_for_each_bias():
    x, y = descent.load_examples()
    grid = descent.cost_grid(x, y)
    costs = np.asarray(grid["grid_cost"]).reshape(descent.GRID_SIZE, descent.GRID_SIZE)
    logits = grid["grid_weight"][30] * x + grid["grid_bias"][7]
    assert costs[7, 30] == pytest.approx(np.mean(np.logaddexp(0, logits) - y * logits), rel=1e-5)
    assert costs.min() >= descent.minimum_cost(x, y) - 1e-6


def test_three_variants_leave_three_records(tmp_path, capsys):
    arguments = ["--study=descent", "--device=cpu:1", "--epochs=20", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = {record["settings"]["model"]: record for record in read_records(tmp_path, "descent")}
    assert {name: record["metrics"]["steps"] for name, record in records.items()} == {
        "full batch": 20,
        "mini-batch": 20 * (569 // 32),
        "single sample": 20 * 569,
    }
    excess = {name: record["metrics"]["excess_loss"] for name, record in records.items()}
    for name, record in records.items():
        samples = record["samples"]
        assert (samples["path_weight"][0], samples["path_bias"][0]) == descent.START
        assert samples["path_step"][-1] == record["metrics"]["steps"]
        assert len(samples["path_cost"]) <= descent.MAX_POINTS
        final_cost, minimum = samples["path_cost"][-1], record["provenance"]["least_loss"]
        assert excess[name] == pytest.approx(final_cost - minimum)
    costs = records["full batch"]["samples"]["path_cost"]
    assert all(after < before for before, after in itertools.pairwise(costs)), (
        "the cost of the full batch always decreases"
    )
    assert excess["mini-batch"] < excess["full batch"]
    assert "single sample: 11,380 steps, ending" in capsys.readouterr().out.replace("\n", " ")


def test_a_mini_batch_larger_than_the_data_set_is_rejected(tmp_path, capsys):
    arguments = ["--study=descent", "--device=cpu:1", "--batch-size=570", f"--results={tmp_path}"]
    assert run.main(arguments) == 2
    assert "--batch-size=570: study 'descent' has 569 examples" in capsys.readouterr().err
