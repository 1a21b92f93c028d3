"""Many networks trained at once have the parameters that each has when trained alone."""

import jax
import numpy as np
import pytest

from jaxcnn import models, training
from jaxcnn.data.scheduled import ScheduledFeed, batch_rows
from jaxcnn.parallel.members import Members

DATA_AXES = {"image": None, "label": None, "rows": 0}
STEPS, BATCH_SIZE, IMAGES = 3, 4, 40
# Of the largest parameter of an array: three steps of momentum, sums in another order.
TOLERANCE = 1e-5


def make_optimizer():
    return training.optimizer("momentum", 0.05, "constant", steps=1, steps_per_epoch=1)


def largest_difference(params, reference) -> float:
    """The largest difference of a leaf over the largest value of that leaf, if that is not 0."""
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(reference), strict=True)
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0)) for a, b in pairs)


def train_both_ways(model: str, shape: tuple[int, int, int], count: int, devices):
    """Trains networks with different seeds, all at once and each alone.

    Returns:
      The members, and the parameters of each network: trained at once, and trained alone.
    """
    rng = np.random.default_rng(0)
    data = {
        "image": rng.integers(0, 256, (IMAGES, *shape), np.uint8),
        "label": rng.integers(0, 10, IMAGES, np.int32),
    }
    created = [
        training.create(
            models.build(model, input_shape=shape, seed=seed), make_optimizer(), seed=seed
        )
        for seed in range(count)
    ]
    states, step = [state for state, _ in created], created[0][1]
    run_steps = training.multi_step(step, ScheduledFeed(STEPS))
    rows = [batch_rows(range(IMAGES), STEPS, BATCH_SIZE, seed) for seed in range(count)]
    members = Members(count, devices)
    stacked_data = members.place_data(data | {"rows": np.stack(rows)}, DATA_AXES)
    train_all = members.compile(run_steps, (0, DATA_AXES, None))
    trained, _ = train_all(members.place(states), stacked_data, np.int32(STEPS))
    train_one = jax.jit(run_steps)
    alone = [
        train_one(state, data | {"rows": own_rows}, np.int32(STEPS))[0].params
        for state, own_rows in zip(states, rows, strict=True)
    ]
    return members, members.fetch(trained.params), jax.device_get(alone)


@pytest.mark.parametrize("count", [1, 8], ids=["one device", "eight devices"])
def test_eight_networks_at_once_have_the_parameters_of_eight_runs(count, devices):
    members, at_once, alone = train_both_ways("lenet_like", (32, 32, 1), 8, devices[:count])
    assert len(members.devices) == count
    assert largest_difference(at_once, alone) < TOLERANCE
    assert largest_difference(at_once[0], alone[1]) > 0.1, "members are different networks"


def test_dropout_draws_the_same_for_a_member_as_for_a_network_alone(devices):
    _, at_once, alone = train_both_ways("mlp:16", (28, 28, 1), 4, devices[:2])
    assert largest_difference(at_once, alone) < TOLERANCE


@pytest.mark.parametrize(
    ("count", "available", "used"), [(8, 8, 8), (6, 8, 6), (6, 4, 3), (5, 4, 1), (1, 8, 1)]
)
def test_the_largest_number_of_devices_that_divides_the_members_is_used(
    count, available, used, devices
):
    assert len(Members(count, devices[:available]).devices) == used


def test_without_members_there_is_nothing_to_map(devices):
    with pytest.raises(ValueError, match="at least one member and one device"):
        Members(0, devices)


def test_every_member_needs_a_state(devices):
    state, _ = training.create(models.build("logistic"), make_optimizer())
    with pytest.raises(ValueError, match="1 states for 2 members"):
        Members(2, devices).place([state])
