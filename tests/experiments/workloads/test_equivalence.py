"""The largest difference of two trees, worked out by hand, and the remark on it."""

import numpy as np
import pytest

from experiments.workloads import equivalence


@pytest.mark.parametrize(
    ("values", "reference", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.0], 0.5),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
    ids=["equal", "relative", "absolute", "both not finite", "one not finite", "empty"],
)
def test_the_largest_difference(values, reference, difference):
    trees = {"leaf": np.array(values)}, {"leaf": np.array(reference)}
    assert equivalence.largest_difference(*trees) == difference


def test_a_difference_beyond_rounding_is_a_remark():
    metrics = {"largest_loss_difference": 0.5, "largest_parameter_difference": 1e-6}
    (line,) = equivalence.remarks(metrics)
    assert line == "largest loss difference 5.0e-01: more than 0.001, the tolerance for rounding"
