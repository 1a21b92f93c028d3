"""Verdicts on two records of one training run, worked out by hand."""

import pytest

from experiments.analysis.platform_parity import parities
from experiments.records import Record

LOSSES, TWIN_LOSSES = [2.0, 1.0, 1.0, 0.5], [2.0, 1.000001, 1.000002, 0.5]
SETTINGS = {"model": "lenet5", "strategy": "jit"}
# One array of norm 1 with two projections: the mean square difference from the twin is (3e-6)².
SKETCH = {"norm": [1.0], "projection": [0.5, -0.5], "twin_projection": [0.500003, -0.500003]}


def make_record(
    accelerator: str, losses: list[float] = LOSSES, *, settings: dict | None = None, **samples
) -> Record:
    return Record(
        "parity",
        "case",
        "ok",
        settings=settings or SETTINGS,
        metrics={"product_bits": 23},
        samples={"loss": list(losses), "twin_loss": TWIN_LOSSES} | SKETCH | samples,
        provenance={
            "platform": "cpu" if accelerator == "CPU" else "gpu",
            "accelerator": accelerator,
            "machine": accelerator,
        },
    )


def test_drift_and_rounding_drift_by_hand():
    gpu = make_record("GPU", [2.0, 1.0, 1.000004, 0.5], projection=[0.5, -0.500004])
    (pair,) = parities([gpu, make_record("CPU")])
    assert pair.ours.provenance["accelerator"] == "CPU", "the CPU comes first"
    assert pair.drift == pytest.approx((0, 0, 4e-6, 4e-6), rel=1e-3), "the largest up to each step"
    # Both differ from their twins by 1e-6 at step 2 and by 2e-6 at step 3, with opposite signs.
    assert pair.rounding_drift == pytest.approx((2**-23, 1e-6, 2e-6, 2e-6), rel=1e-3)
    assert pair.rounding_distance == pytest.approx(3e-6, rel=1e-3), (
        "that of the CPU, as that of the GPU is the root of (3² + 1²) / 2"
    )
    assert pair.same is True
    assert pair.verdict.startswith(
        "unchanged: losses differ by 4.0e-06 up to step 4, where rounding explains 2.0e-06"
    )
    assert f"parameters by {4e-6 / 2**0.5:.1e} of their norm" in pair.verdict


@pytest.mark.parametrize(
    ("losses", "projection", "same", "verdict"),
    [
        (LOSSES, None, True, "identical: all losses of 4 steps"),
        (
            [2.001, 1.0, 1.0, 0.5],
            None,
            False,
            "different from the start: the first losses, before any update, differ by 5.0e-04",
        ),
        (
            [2.0, 1.0, 1.001, 0.5],
            None,
            False,
            "different from step 3 on: losses differ by 1.0e-03, where rounding explains",
        ),
        (
            LOSSES,
            [0.5, -0.51],
            False,
            "different parameters: they differ by 7.1e-03 of their norm, "
            "where rounding explains 3.0e-06",
        ),
    ],
    ids=["identical", "from the start", "later", "parameters"],
)
def test_verdicts(losses, projection, same, verdict):
    ratios = (1, 1.000001, 1.000002, 1)
    samples = {
        "twin_loss": [loss * ratio for loss, ratio in zip(losses, ratios, strict=True)],
    }
    if projection:
        samples["projection"] = projection
        samples["twin_projection"] = [value + 3e-6 for value in projection]
    (pair,) = parities([make_record("CPU"), make_record("GPU", losses, **samples)])
    assert pair.same is same and pair.verdict.startswith(verdict), pair.verdict


@pytest.mark.parametrize(
    ("losses", "samples", "problem"),
    [
        ([2.0, 1.0], {"twin_loss": [2.0, 1.0]}, "4 and 2 values of loss"),
        ([2.0, None, 1.0, 0.5], {}, "a record has no loss, or one that is not a number"),
        (LOSSES, {"projection": []}, "a record has no projection"),
        (
            LOSSES,
            {"twin_loss": [2.0, 1.0, 1.0]},
            "a run and its twins have different numbers of values of loss",
        ),
        (LOSSES, {"norm": [1.0, 1.0]}, "1 and 2 values of norm"),
    ],
)
def test_records_that_cannot_be_compared_say_why(losses, samples, problem):
    (pair,) = parities([make_record("CPU"), make_record("GPU", losses, **samples)])
    assert pair.same is None
    assert pair.verdict.startswith("cannot be compared: ") and problem in pair.verdict


@pytest.mark.parametrize(
    "other",
    [
        make_record("GPU", settings={"model": "mlp", "strategy": "jit"}),
        Record("parity", "case", "failed", settings=SETTINGS),
        Record("train", "case", "ok", settings=SETTINGS),
        make_record("CPU"),
    ],
    ids=["another network", "failed", "another study", "the same platform"],
)
def test_only_the_same_training_on_another_platform_is_compared(other):
    assert parities([make_record("CPU"), other]) == []


def test_the_rounding_drift_is_that_of_the_worst_twin():
    """One twin of four takes another way at step 2, as the GPU does."""
    gpu_losses = [2.0, 1.02, 1.02, 0.5]
    gpu = make_record("GPU", gpu_losses, projection=[0.5, -0.500004], twin_loss=gpu_losses)
    (pair,) = parities([make_record("CPU"), gpu])
    assert pair.verdict.startswith("different from step 2 on")
    twin_losses = [*TWIN_LOSSES, 2.0, 1.01, 1.01, 0.5, *TWIN_LOSSES, *TWIN_LOSSES]
    (pair,) = parities([make_record("CPU", twin_loss=twin_losses), gpu])
    assert pair.rounding_drift[1:] == pytest.approx([0.01 / 1.01] * 3)
    assert pair.same is True


def test_strategies_on_one_platform_are_compared():
    data_parallel = make_record("CPU", settings={"model": "lenet5", "strategy": "data"})
    (pair,) = parities([make_record("CPU"), data_parallel])
    assert pair.verdict.startswith("identical")
