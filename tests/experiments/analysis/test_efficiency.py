"""Scaling efficiencies, worked out by hand."""

import pytest

from experiments.analysis.efficiency import conclusion, efficiencies
from experiments.records import Record


def make_record(
    kind: str, devices: int, batch: int, seconds: float, *, interval=None, **provenance
) -> Record:
    low, high = interval or (seconds, seconds)
    settings = {
        "point": kind,
        "scaling": kind,
        "devices_used": devices,
        "batch_size": batch,
        "model": "lenet5",
        "strategy": "data",
    }
    return Record(
        "scaling",
        f"{kind}{devices}",
        "ok",
        settings=settings,
        metrics={"step_time": seconds, "step_time_low": low, "step_time_high": high},
        provenance={"accelerator": "GPU", "machine": "m"} | provenance,
    )


BASE = make_record("base", 1, 64, 0.10, interval=(0.08, 0.12))


def test_strong_scaling_by_hand():
    """The same 64 images in 0.04 s on 4 devices: 2.5 times as fast, an efficiency of 0.625."""
    (result,) = efficiencies([BASE, make_record("strong", 4, 64, 0.04, interval=(0.03, 0.05))])
    assert (result.scaling, result.devices) == ("strong", 4)
    assert result.speed_up == pytest.approx(2.5)
    assert result.efficiency == pytest.approx(0.625)
    assert result.low == pytest.approx(0.08 / 0.05 / 4)
    assert result.high == pytest.approx(0.12 / 0.03 / 4)


def test_weak_scaling_by_hand():
    """256 images in 0.125 s on 4 devices are 2048 per second, 3.2 times the 640 of one device."""
    (result,) = efficiencies([BASE, make_record("weak", 4, 256, 0.125)])
    assert result.speed_up == pytest.approx(3.2)
    assert result.efficiency == pytest.approx(0.8)


def test_curves_of_two_batch_sizes_are_not_mixed():
    """1.6 is 0.08 s over 0.05 s for 32 images; the batch of 64 on 2 devices is weak, from 32."""
    records = [
        BASE,
        make_record("base", 1, 32, 0.08),
        make_record("strong", 2, 64, 0.05),
        make_record("strong", 2, 32, 0.05),
        make_record("weak", 2, 64, 0.10),
    ]
    speed_ups = {
        (point.scaling, point.record.settings["batch_size"]): point.speed_up
        for point in efficiencies(records)
    }
    assert speed_ups == pytest.approx({("strong", 64): 2, ("strong", 32): 1.6, ("weak", 64): 1.6})


def test_efficiencies_are_sorted_and_need_the_record_of_one_device():
    records = [
        BASE,
        make_record("weak", 4, 256, 0.1),
        make_record("strong", 2, 64, 0.05),
        make_record("strong", 4, 64, 0.025),
    ]
    points = [(result.scaling, result.devices) for result in efficiencies(records)]
    assert points == [("strong", 2), ("strong", 4), ("weak", 4)]
    assert efficiencies(records[1:]) == []


@pytest.mark.parametrize(
    "other",
    [
        make_record("strong", 4, 64, 0.04, simulated=True),
        make_record("strong", 4, 64, 0.04, machine="another"),
        Record("scaling", "case", "failed", settings={"devices_used": 4}),
        Record("train", "case", "ok", settings={"devices_used": 4}, metrics={"step_time": 1.0}),
    ],
    ids=["simulated", "another machine", "failed", "another study"],
)
def test_records_that_cannot_be_compared_have_no_efficiency(other):
    assert efficiencies([BASE, other]) == []


def test_the_conclusion_is_in_words():
    (line,) = conclusion([BASE, make_record("strong", 4, 64, 0.04)])
    assert line == (
        "data, strong, batch 64: 2.50 times the images per second of one device, "
        "efficiency 0.62 (0.50 to 0.75)"
    )
