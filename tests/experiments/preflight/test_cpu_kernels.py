"""Kernels timed on this processor, and steps predicted from them."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import cpu_kernels
from benchmarks.cpu_kernels import KernelTimes, TimedKernel, kernel_of, signature
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
    assert times.seconds(item) > 0 and [*times.known] == [signature(item)]


FAMILY = "dot_general (((1,), (0,)), ((), ())) "


def timed(sizes, seconds, family=FAMILY):
    """A product of 100 FLOP."""
    return TimedKernel(family, sizes, PRODUCT, 100.0, 1.0, 0.0, seconds)


@pytest.mark.parametrize(
    ("sizes", "seconds", "factor"),
    [
        ((8, 16, 16, 8, 8, 8), 4.0, 2.0),  # at the same distance: the geometric mean of 1 and 4
        ((8, 8, 16, 8, 8, 8), 8.0, 8**0.625),  # nearer, weights of 1 / 1.5 beside 1 / 2.5
    ],
)
def test_a_kernel_that_was_not_timed_is_as_far_from_its_roofline_as_similar_ones(
    sizes, seconds, factor
):
    """The best rate is 100 FLOP/s, so that one kernel takes the time of its roofline.

    The other one takes 4 or 8 times as long. The product has 1,024 FLOP.
    """
    item, own = product(8, 8, 8), "own"
    known = {
        "at the roofline": timed((8, 8, 8, 16, 8, 16), 1.0),
        "slower": timed(sizes, seconds),
        own: timed((8, 8, 8, 8, 8, 8), 1e-3),
        "another kind": timed((8, 8, 8, 8, 8, 8), 2.0, "conv_general_dilated"),
        "in a cache": timed((8, 8, 8, 8, 8), 1e-5),
    }
    times = KernelTimes({"elementwise": (1e30, 1.0)}, known)
    assert times.interpolated(item, {own}) == pytest.approx(10.24 * factor)


def test_fused_operations_are_compared_by_their_bytes_and_instructions():
    """50 sums take 4 s by the roofline; the only other kernel takes 3 times its own."""
    a = jax.ShapeDtypeStruct((50,), jnp.float32)
    (item,) = operations(lambda a: a + 1, a, platform="cpu")
    other = TimedKernel("fusion elementwise", (800, 100), ELEMENTWISE, 0.0, 800.0, 100.0, 24.0)
    times = KernelTimes({"elementwise": (100.0, 25.0)}, {"other": other})
    assert times.interpolated(item, ()) == pytest.approx(12.0)


@pytest.mark.parametrize(("groups", "grouping"), [(1, " "), (2, " grouped"), (8, " depthwise")])
def test_depthwise_convolutions_and_their_gradients_are_a_family_of_their_own(groups, grouping):
    image = jax.ShapeDtypeStruct((2, 8, 8, 8), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 8 // groups, 8), jnp.float32)

    def gradients(image, kernel):
        def convolve(image, kernel):
            return jax.lax.conv_general_dilated(
                image,
                kernel,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            )

        return jax.vjp(convolve, image, kernel)[1](image)

    items = operations(gradients, image, kernel, platform="cpu")
    families = [kernel_of(item).family for item in items if item.flops]
    assert len(families) == 2 and all(family.endswith(grouping) for family in families)


def test_the_shortest_sample_counts_and_kernels_of_little_time_are_sampled_once(monkeypatch):
    """The large product takes 3.1 s in the second round; the small one little."""
    samples = {1: [0.1] * 9, 64: [0.15], 128: [5.1, 3.1, *[4.1] * 9]}  # by the first operand's size
    next_of = {size: iter(seconds) for size, seconds in samples.items()}
    monkeypatch.setattr(cpu_kernels, "time_call", lambda _, ops, __: next(next_of[ops[0].size]))
    times, small, large = KernelTimes({}), product(8, 8, 8), product(16, 8, 8)
    times.time([small, large])
    assert times.seconds(large) == pytest.approx(3.0)
    assert times.seconds(small) == pytest.approx(0.05)


def test_each_signature_is_timed_once():
    times = KernelTimes({"elementwise": (1.0, 1.0)})
    item, larger = product(8, 8, 8), product(16, 8, 8)
    assert item.kind == PRODUCT and signature(item) != signature(larger)
    seconds = times.seconds(item)
    assert 0 < seconds == times.seconds(product(8, 8, 8)) and len(times.known) == 1
    times.seconds(larger)
    assert len(times.known) == 2
