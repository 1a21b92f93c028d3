"""A precision compared with full float32, worked out by hand."""

import pytest

from experiments.analysis.precisions import compare_precisions, conclusion
from experiments.records import Record

LOSSES = [2.0, 1.0]


def make_record(precision: str, products: str, accuracy: float, **changes) -> Record:
    fields = {
        "settings": {
            "model": "lenet5",
            "precision": precision,
            "product_precision": products,
            "point": f"{precision}, {products}",
        },
        "metrics": {"test_accuracy": accuracy, "step_time": 0.02, "memory_planned": 1000},
        "samples": {"loss": LOSSES, "step_time": [0.02] * 7},
        "provenance": {"accelerator": "GPU", "machine": "m", "examples": {"test": 400}},
    }
    return Record("precision", "case", "ok", **(fields | changes))


FULL = make_record("float32", "highest", 0.9)


def test_a_precision_compared_with_full_float32_by_hand():
    half = make_record(
        "bfloat16",
        "default",
        0.88,
        metrics={"test_accuracy": 0.88, "memory_planned": 600},
        samples={"loss": [2.0, 1.25], "step_time": [0.01] * 7},
    )
    (comparison,) = compare_precisions([FULL, half])
    assert comparison.memory == pytest.approx(0.6)
    assert comparison.drift == (0.0, pytest.approx(0.2))
    assert comparison.speed == "faster: takes 0.500 times as long (0.500 to 0.500)"
    assert comparison.accuracy == pytest.approx(-0.02)
    error = 1.96 * ((0.9 * 0.1 + 0.88 * 0.12) / 400) ** 0.5  # 4.3 points
    assert comparison.error == pytest.approx(error)
    assert comparison.verdict.startswith(
        "no difference detected: -2.00 points of test accuracy, "
        "where chance explains ±4.33 with 400 images"
    )
    (line,) = conclusion([FULL, half])
    assert line.startswith(
        "bfloat16, default compared with full float32: "
        "step time: faster: takes 0.500 times as long (0.500 to 0.500); "
        "memory: 0.60 times as much; accuracy: no difference detected: -2.00 points"
    )


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(0.8, "less accurate: -10.00"), (0.99, "more accurate: +9.00")]
)
def test_a_difference_beyond_chance_is_reported(accuracy, verdict):
    (comparison,) = compare_precisions([make_record("float16", "default", accuracy), FULL])
    assert comparison.verdict.startswith(verdict)


@pytest.mark.parametrize(
    "other",
    [
        make_record(
            "bfloat16",
            "default",
            0.9,
            provenance={"accelerator": "CPU", "machine": "m", "examples": {"test": 400}},
        ),
        make_record(
            "bfloat16",
            "default",
            0.9,
            settings={"model": "mlp", "precision": "bfloat16", "product_precision": "default"},
        ),
        make_record("bfloat16", "default", 0.9, samples={"loss": [], "step_time": [0.02] * 7}),
        make_record("bfloat16", "default", 0.9, samples={"loss": [2.0], "step_time": [0.02] * 7}),
        Record("precision", "case", "failed"),
        FULL,
    ],
    ids=[
        "another accelerator",
        "another network",
        "no losses",
        "another number of losses",
        "failed",
        "full float32 itself",
    ],
)
def test_records_without_a_counterpart_are_not_compared(other):
    assert compare_precisions([FULL, other]) == []
