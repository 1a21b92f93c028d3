import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.order import epoch_order


@pytest.mark.parametrize("count", [1, 2, 1000, 54_000])
def test_the_order_is_a_permutation_and_the_same_on_host_and_device(count):
    host = epoch_order(count, 7, 3)
    assert sorted(host.tolist()) == list(range(count))
    np.testing.assert_array_equal(host, epoch_order(count, 7, jnp.int32(3), jnp))


def test_other_seeds_and_epochs_give_other_orders():
    orders = [
        epoch_order(1000, seed, epoch)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1), (2**31 - 1, 0)]
    ]
    for i, order in enumerate(orders):
        for other in orders[:i]:
            assert np.mean(order == other) < 0.01


def test_positions_are_uniform():
    """Chi-squared test of the position of example 0 among 10 in 2,000 epochs.

    27.9 is the 0.1 % point for 9 degrees of freedom.
    """
    positions = [int(np.flatnonzero(epoch_order(10, 0, epoch) == 0)[0]) for epoch in range(2000)]
    counts = np.bincount(positions, minlength=10)
    assert ((counts - 200) ** 2 / 200).sum() < 27.9
