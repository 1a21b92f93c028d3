"""Kernels timed on this processor, and steps predicted from them."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.cpu_kernels import KernelTimes, TimedKernel, signature
from experiments.preflight.operation import ELEMENTWISE, PRODUCT
from experiments.preflight.operations import operations


def product(rows: int, inner: int, columns: int):
    """The operation of a matrix product."""
    a = jax.ShapeDtypeStruct((rows, inner), jnp.float32)
    b = jax.ShapeDtypeStruct((inner, columns), jnp.float32)
    (item,) = operations(lambda a, b: a @ b, a, b, platform="cpu")
    return item


def test_a_fused_kernel_that_was_not_timed_takes_the_longer_of_traffic_and_instructions():
    """400 B at 100 B/s beside 50 instructions at 25 a second."""
    times = KernelTimes({"elementwise": (100.0, 25.0)})
    a = jax.ShapeDtypeStruct((50,), jnp.float32)
    (item,) = operations(lambda a: a + 1, a, platform="cpu")
    assert (item.kind, item.bytes, item.work) == (ELEMENTWISE, 400, 50)
    assert times.interpolated(item, ()) == pytest.approx(4.0)


def test_a_fused_kernel_is_timed_as_a_program_of_its_own():
    times = KernelTimes({"elementwise": (100.0, 25.0)}, working_set=1)
    a = jax.ShapeDtypeStruct((50,), jnp.float32)
    (item,) = operations(lambda a: jnp.tanh(a + 1), a, platform="cpu")
    assert 0 < times.seconds(item) < 0.1 and [*times.known] == [signature(item)]


def test_a_kernel_that_was_not_timed_is_as_fast_as_similar_ones():
    """Kernels of 1 and 4 ns per FLOP stand for one of another size: 2 ns, their geometric mean."""
    item, own = product(8, 8, 8), "own"
    family = "dot_general (((1,), (0,)), ((), ())) False"
    known = {
        "a": TimedKernel(family, (8, 8, 8, 16, 8, 16), 100.0, 1.0, 100e-9),
        "b": TimedKernel(family, (8, 16, 16, 8, 8, 8), 100.0, 1.0, 400e-9),
        own: TimedKernel(family, (8, 8, 8, 8, 8, 8), 100.0, 1.0, 1.0),
        "another kind": TimedKernel("conv_general_dilated", (8, 8, 8, 8, 8, 8), 1.0, 1.0, 1.0),
    }
    times = KernelTimes({"elementwise": (1.0, 1.0)}, known)
    assert times.interpolated(item, {own}) == pytest.approx(2 * 8**3 * 2e-9)


def test_each_signature_is_timed_once():
    times = KernelTimes({"elementwise": (1.0, 1.0)})
    item, larger = product(8, 8, 8), product(16, 8, 8)
    assert item.kind == PRODUCT and signature(item) != signature(larger)
    seconds = times.seconds(item)
    assert 0 < seconds == times.seconds(product(8, 8, 8)) and len(times.known) == 1
    times.seconds(larger)
    assert len(times.known) == 2
