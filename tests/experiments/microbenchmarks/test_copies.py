"""Copies between host and device."""

import jax
import numpy as np
import pytest

from experiments.microbenchmarks import copies


@pytest.mark.parametrize("offset", range(16))
def test_copies_share_no_memory(offset):
    """Neither host and device, at any alignment of the host's array, nor two copies to the host."""
    host = copies.unaligned_copy(np.arange(1000, dtype=np.float32)[offset:])
    assert host[1] == offset + 1 and host.ctypes.data % 64 == 4
    on_device = jax.block_until_ready(copies.copy_in(host, jax.devices()[0]))
    host[:] = 0
    first, second = copies.copy_out(on_device), copies.copy_out(on_device)
    assert first[1] == second[1] == offset + 1 and not np.shares_memory(first, second)


def test_the_copy_from_an_accelerator_is_an_explicit_transfer(monkeypatch):
    """The guard under which calls are timed disallows NumPy's conversion, except on CPUs."""

    class ArrayOnGpu:
        shape, sharding = (2,), None

        def platform(self):
            return "gpu"

        def __array__(self, *args, **kwargs):
            raise RuntimeError("disallowed device-to-host transfer")

    array, on_host = ArrayOnGpu(), np.ones(2)
    monkeypatch.setattr(jax, "make_array_from_single_device_arrays", lambda *args: array)
    monkeypatch.setattr(jax, "device_get", {array: on_host}.__getitem__)
    assert copies.copy_out(array) is on_host
