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
