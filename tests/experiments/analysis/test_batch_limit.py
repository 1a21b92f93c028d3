"""The largest batch, observed and predicted, worked out by hand."""

import pytest

from experiments.analysis.batch_limit import Limit, conclusion, limit
from experiments.records import Record

MEMORY = {"memory_limit": 10_000, "memory_held": 1_000}


def make_record(batch: int, status: str = "ok", **metrics: float) -> Record:
    settings = {"batch_size": batch}
    return Record("batch_sweep", f"b{batch}", status, settings=settings, metrics=metrics)


def test_the_observed_and_the_predicted_limit():
    # 1,000 bytes for the network and 50 per image: 9,000 bytes hold 160 images. Near the limit the
    # plan rises more steeply.
    plans = {16: 1_800, 32: 2_600, 64: 4_200, 128: 8_500, 256: 20_000}
    records = [
        make_record(batch, "ok" if batch < 200 else "out_of_memory", memory_planned=plan, **MEMORY)
        for batch, plan in plans.items()
    ]
    plans_say = "the compiler's memory plans"
    assert limit(records) == Limit(observed=128, too_large=256, predicted=160, basis=plans_say)
    assert conclusion(records) == [
        "largest batch that ran: 128; smallest that ran out of memory: 256",
        "largest batch predicted by the compiler's memory plans: 160",
    ]


@pytest.mark.parametrize(
    ("first", "second", "predicted"),
    [
        ({"memory_planned": 5, **MEMORY}, MEMORY, None),
        ({"memory_planned": 5}, {"memory_planned": 6}, None),
        ({"memory_planned": 5, **MEMORY}, {"memory_planned": 5, **MEMORY}, None),
        ({"memory_planned": 1_000, **MEMORY}, {"memory_planned": 2_000, **MEMORY}, 9),
    ],
    ids=["one plan", "no limit", "plans that do not grow", "two plans and a limit"],
)
def test_a_prediction_needs_two_plans_and_a_limit(first, second, predicted):
    assert limit([make_record(1, **first), make_record(2, **second)]).predicted == predicted


def test_one_plan_is_not_enough_when_the_other_batch_did_not_fit():
    records = [
        make_record(1, memory_planned=5, **MEMORY),
        make_record(2, "out_of_memory", **MEMORY),
    ]
    assert limit(records).predicted is None


def test_the_plan_of_a_batch_that_did_not_fit_counts():
    fits = make_record(1, memory_planned=1_000, **MEMORY)
    too_large = make_record(16, "out_of_memory", memory_planned=16_000, **MEMORY)
    assert limit([fits, too_large]).predicted == 9


def test_a_single_batch_shows_what_is_in_use_besides_its_plan():
    """3,000 bytes besides the plan, of 10,000, in both: at 50 bytes an image, 140 of them."""
    fits = make_record(10, memory_planned=500, memory_used=3_500, **MEMORY)
    too_large = make_record(
        200, "out_of_memory", memory_planned=10_000, memory_limit=10_000, memory_held=3_000
    )
    assert limit([fits, too_large]).predicted == 140


def test_what_a_cpu_really_used_counts_rather_than_the_plans():
    """4,000 bytes of process and 100 per image, with a limit of 10,000: 60 images."""
    records = [
        make_record(batch, memory_planned=50 * batch, memory_used=4_000 + 100 * batch, **MEMORY)
        for batch in (8, 16)
    ]
    assert limit(records).predicted == 60
    assert conclusion(records)[-1] == (
        "largest batch predicted by the memory that smaller batches used: 60"
    )


def test_use_that_hardly_grew_does_not_predict_more_than_the_plans():
    """1 byte an image by use, 50 by plan beside 5,000 bytes: of 10,000, 100 images."""
    records = [
        make_record(batch, memory_planned=50 * batch, memory_used=used, **MEMORY)
        for batch, used in ((8, 5_400), (16, 5_408))
    ]
    assert limit(records).predicted == 100
    assert limit(records).basis == "the compiler's memory plans"


@pytest.mark.parametrize(
    ("statuses", "line"),
    [
        (
            {32: "ok", 64: "ok"},
            "largest batch that ran: 64; the preset ended the sweep, not memory",
        ),
        ({32: "ok", 64: "failed"}, "the sweep ended at batch 64, which failed"),
        ({32: "failed"}, "the sweep ended at batch 32, which failed"),
    ],
)
def test_a_sweep_says_why_it_ended(statuses, line):
    assert conclusion([make_record(batch, status) for batch, status in statuses.items()]) == [line]


def test_a_sweep_without_any_batch_that_fits_says_so():
    first, *_ = conclusion([make_record(32, "out_of_memory")])
    assert first.startswith("even the first batch, 32, does not fit")
