"""Three ways down one hill."""

import itertools
import json

import jax
import numpy as np
import pytest

from experiments import run
from experiments.studies import descent


def test_a_step_is_the_one_worked_out_by_hand():
    # at (0, 0) every share is 1/2, so the slopes are the means of (1/2 - y) x and of 1/2 - y
    x, y = np.float32([1, 3]), np.float32([0, 1])
    path = jax.jit(descent.descend)(x, y, np.int32([[0, 1]]), np.float32([0, 0]), np.float32(2))
    np.testing.assert_allclose(path, [[0, 0], [2 * 0.5, 0]], atol=1e-7)
    single = jax.jit(descent.descend)(x, y, np.int32([[1], [0]]), np.float32([0, 0]), np.float32(2))
    # first (1/2 - 1) of 3 and of 1, then the other example with logit 3 + 1
    share = 1 / (1 + np.exp(-4))
    np.testing.assert_allclose(single, [[0, 0], [3, 1], [3 - 2 * share, 1 - 2 * share]], rtol=1e-6)


def test_every_epoch_takes_each_example_once():
    rows = descent.order(10, 5, 3, seed=1)
    assert [sorted(epoch.ravel()) for epoch in rows.reshape(3, 2, 5)] == [list(range(10))] * 3
    assert descent.order(10, 4, 1, seed=1).shape == (2, 4)
    assert not np.array_equal(descent.order(10, 5, 3, seed=2), rows)


def test_the_least_cost_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    x, y = descent.examples()
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, None], y)
    assert descent.least_cost(x, y) == pytest.approx(
        log_loss(y, model.predict_proba(x[:, None])), abs=1e-6
    )


def test_the_map_is_the_cost_row_by_row():
    x, y = descent.examples()
    found = descent.contours(x, y)
    height = np.asarray(found["grid_cost"]).reshape(descent.SIDE, descent.SIDE)
    logits = found["grid_weight"][30] * x + found["grid_bias"][7]
    assert height[7, 30] == pytest.approx(np.mean(np.logaddexp(0, logits) - y * logits), rel=1e-5)
    assert height.min() >= descent.least_cost(x, y) - 1e-6


def test_three_paths_are_three_records(tmp_path, capsys):
    assert (
        run.main(["--study=descent", "--device=cpu:1", "--epochs=20", f"--results={tmp_path}"]) == 0
    )
    found = {
        row["settings"]["model"]: row
        for row in (json.loads(p.read_text()) for p in (tmp_path / "descent").glob("*.json"))
    }
    assert {name: row["metrics"]["steps"] for name, row in found.items()} == {
        "full batch": 20,
        "mini-batch": 20 * (569 // 32),
        "single sample": 20 * 569,
    }
    for row in found.values():
        samples = row["samples"]
        assert (samples["path_weight"][0], samples["path_bias"][0]) == descent.START
        assert (
            samples["path_step"][-1] == row["metrics"]["steps"]
            and len(samples["path_cost"]) <= descent.POINTS
        )
        assert row["metrics"]["excess_loss"] == pytest.approx(
            samples["path_cost"][-1] - row["provenance"]["least_loss"]
        )
    heights = found["full batch"]["samples"]["path_cost"]
    assert all(after < before for before, after in itertools.pairwise(heights)), (
        "the whole batch goes straight down"
    )
    assert (
        found["mini-batch"]["metrics"]["excess_loss"]
        < found["full batch"]["metrics"]["excess_loss"]
    )
    assert "single sample: 11,380 steps end" in capsys.readouterr().out.replace("\n", " ")


def test_a_mini_batch_of_more_than_there_are_is_refused(tmp_path, capsys):
    assert (
        run.main(["--study=descent", "--device=cpu:1", "--batch-size=570", f"--results={tmp_path}"])
        == 2
    )
    assert "--batch-size=570: descent has 569 examples" in capsys.readouterr().err
