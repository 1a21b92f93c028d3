"""Arrays between host and devices: which rows a process reads, and what the devices get."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn import parallel
from jaxcnn.parallel import placement


@pytest.fixture
def mesh(devices):
    return Mesh(np.reshape(devices, (4, 2)), ("data", "tensor"))


class OneProcess:
    """A sharding as the process that owns some of its devices sees it."""

    def __init__(self, sharding, devices):
        self.sharding, self.devices = sharding, devices

    def addressable_devices_indices_map(self, shape):
        everything = self.sharding.devices_indices_map(shape)
        return {device: everything[device] for device in self.devices}


def rows_of(sharding, devices, count):
    return placement.local_rows(OneProcess(sharding, devices), count).tolist()


def test_processes_read_the_rows_of_their_devices_and_no_others(mesh, devices):
    divided = NamedSharding(mesh, PartitionSpec("data"))
    assert rows_of(divided, devices[:4], 12) == [0, 1, 2, 3, 4, 5]
    assert rows_of(divided, devices[4:], 12) == [6, 7, 8, 9, 10, 11]
    assert rows_of(divided, [devices[0], devices[6]], 12) == [0, 1, 2, 9, 10, 11]


def test_processes_that_divide_channels_read_the_same_rows(mesh, devices):
    divided = NamedSharding(mesh, PartitionSpec("data"))
    assert rows_of(divided, devices[::2], 8) == rows_of(divided, devices[1::2], 8)
    replicated = NamedSharding(mesh, PartitionSpec())
    assert rows_of(replicated, devices[:2], 3) == [0, 1, 2]


@pytest.mark.parametrize("name", ["jit", "pmap", "data"])
def test_one_process_reads_all_rows(name, devices):
    strategy = parallel.strategy(name, devices)
    assert strategy.local_rows(16).tolist() == list(range(16))
    assert strategy.local_devices == strategy.devices


def test_rows_are_placed_as_a_whole_batch_is(mesh):
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    batch = {"image": np.arange(48.0).reshape(8, 3, 2), "label": np.arange(8)}
    placed = placement.place_rows(batch, sharding, 8)
    expected = jax.device_put(batch, sharding)
    for name in batch:
        assert placed[name].sharding == sharding
        np.testing.assert_array_equal(placed[name], batch[name])
        for part, other in zip(
            placed[name].addressable_shards, expected[name].addressable_shards, strict=True
        ):
            np.testing.assert_array_equal(part.data, other.data)


def test_a_divided_state_is_fetched_whole(mesh):
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    tree = {"a": np.arange(8.0), "key": jax.random.key(3)}
    shardings = {"a": sharding, "key": NamedSharding(mesh, PartitionSpec())}
    fetched = placement.fetch(placement.place(tree, shardings))
    np.testing.assert_array_equal(fetched["a"], tree["a"])
    assert jnp.array_equal(jax.random.key_data(fetched["key"]), jax.random.key_data(tree["key"]))
