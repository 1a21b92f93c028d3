import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.order import epoch_order


@pytest.mark.parametrize("count", [1, 2, 1000, 54_000])
def test_every_example_once_and_alike_on_host_and_device(count):
    host = epoch_order(count, 7, 3)
    assert sorted(host.tolist()) == list(range(count))
    np.testing.assert_array_equal(host, epoch_order(count, 7, jnp.int32(3), jnp))


def test_seeds_and_epochs_give_other_orders():
    orders = [
        epoch_order(1000, seed, epoch)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1), (2**31 - 1, 0)]
    ]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert np.mean(a == b) < 0.01


def test_positions_are_uniform():
    """Chi-squared of where example 0 comes to stand among 10 places, 2,000 epochs; 27.9 is the 0.1 % point of 9 degrees."""
    places = [int(np.flatnonzero(epoch_order(10, 0, epoch) == 0)[0]) for epoch in range(2000)]
    counts = np.bincount(places, minlength=10)
    assert ((counts - 200) ** 2 / 200).sum() < 27.9
