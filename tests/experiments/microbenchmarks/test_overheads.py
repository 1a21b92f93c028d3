"""Parallel lanes and divisions."""

import jax
import numpy as np
import pytest

from experiments.microbenchmarks import overheads


def test_rounds_of_lanes():
    """System A7: 81 divisions take 21 rounds on 4 lanes and 3 on 36."""
    assert [overheads.rounds(81, lanes) for lanes in (1, 4, 36, 81, 100)] == [81, 21, 3, 1, 1]
    with pytest.raises(ValueError, match="81 pieces of work on 0 lanes"):
        overheads.rounds(81, 0)


@pytest.mark.parametrize("function", [overheads.divisions_at_once, overheads.divisions_in_turn])
def test_divisions(function):
    operands = overheads._division_operands(np.random.default_rng(0))
    np.testing.assert_allclose(jax.jit(function)(*operands), np.divide(*operands), rtol=1e-6)
