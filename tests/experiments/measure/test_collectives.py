"""Bytes that collectives move, counted from the text of a compiled program."""

import pytest

from experiments.measure.collectives import (
    Collective,
    bytes_all_reduced,
    bytes_sent,
    collectives,
)

PROGRAM = """
  %all-reduce.12 = (f32[6]{0:T(128)}, bf16[5,5,1,6]{3,2,1,0:T(1,128)}, /*index=2*/f32[]{:T(128)}) \
all-reduce(%a, %b, %c), channel_id=1
  %ars = f32[100]{0} all-reduce-start(%d), channel_id=2
  %ard = f32[100]{0} all-reduce-done(%ars)
  %ags = (f32[8]{0}, f32[32]{0}) all-gather-start(%e), dimensions={0}
  %rs = f32[8]{0} reduce-scatter(%f), dimensions={0}
  %cp = (pred[3]{0}, pred[3]{0}, u32[], u32[]) collective-permute-start(%g)
  %no = f32[9]{0} fusion(%all-reduce.12), calls=%x
"""


def test_collectives_are_counted_by_kind():
    assert collectives(PROGRAM) == (
        Collective("all-gather", 1, 32 * 4),
        Collective("all-reduce", 2, 6 * 4 + 150 * 2 + 4 + 100 * 4),
        Collective("collective-permute", 1, 3),
        Collective("reduce-scatter", 1, 8 * 4),
    )


def test_a_sum_sends_as_much_as_a_reduce_scatter_and_an_all_gather():
    """1200 bytes on three devices: a sum sends 2/3 of them twice.

    A reduce-scatter sends a shard of 400 to two others; an all-gather gathers 1200 in thirds.
    """
    assert bytes_sent([Collective("all-reduce", 1, 1200)], 3) == pytest.approx(1600)
    scatter = bytes_sent([Collective("reduce-scatter", 1, 400)], 3)
    gather = bytes_sent([Collective("all-gather", 1, 1200)], 3)
    assert scatter + gather == pytest.approx(1600)


def test_a_switch_that_adds_needs_each_value_once():
    """Of 1200 bytes on three devices each sends 1200, not 1600; on two devices 1200 either way."""
    sums = [Collective("all-reduce", 1, 1200)]
    assert bytes_sent(sums, 3, switch_adds=True) == 1200
    assert bytes_sent(sums, 2, switch_adds=True) == bytes_sent(sums, 2) == 1200


def test_all_reduced_bytes_count_started_operations_once_and_ignore_metadata():
    program = """
      %a = f32[10]{0} all-reduce(%x), to_apply=%add
      %b = (bf16[3,2]{1,0}, f32[]) all-reduce-start(%y, %z), to_apply=%add
      %c = (bf16[3,2]{1,0}, f32[]) all-reduce-done(%b)
      %d = f32[99]{0} add(%x, %x), metadata={op_name="all-reduce"}
    """
    assert bytes_all_reduced(program) == 40 + 12 + 4
