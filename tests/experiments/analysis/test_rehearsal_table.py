"""The table of a rehearsal, as the documents have it."""

import pytest

from experiments.analysis.rehearsal import rehearsal_table
from experiments.records import Record


def record(number: int, study: str, counts: tuple[int, int, int], target: str = "gpu-h100"):
    names = ("programs_compiled", "programs_out_of_memory", "programs_failed")
    return Record(
        "rehearsal",
        f"{target}-full-{number:02d}",
        "predicted",
        settings={"part": f"part {number}", "target": target, "options": [f"--study={study}"]},
        metrics=dict(zip(names, map(float, counts), strict=True)) | {"compile_time": 90.0},
        provenance={"compiler": "jax-cuda13-plugin 0.10.2"},
    )


def test_a_row_for_each_study_in_the_order_of_the_agenda_and_the_sums():
    records = [
        record(10, "batch_sweep", (4, 1, 0)),
        record(2, "kernels", (1200, 0, 3)),
        record(11, "train", (5, 0, 0)),
        record(3, "train", (6, 0, 0)),
    ]
    assert rehearsal_table(records) == (
        "gpu-h100, jax-cuda13-plugin 0.10.2, compiled in 6 minutes:\n\n"
        "| study | parts | compiled | does not fit | failed |\n"
        "|---|---|---|---|---|\n"
        "| `kernels` | 1 | 1,200 | 0 | 3 |\n"
        "| `train` | 2 | 11 | 0 | 0 |\n"
        "| `batch_sweep` | 1 | 4 | 1 | 0 |\n"
        "| all | 4 | 1,215 | 1 | 3 |"
    )


def test_records_of_two_targets_are_no_table():
    with pytest.raises(ValueError, match="one target and compiler"):
        rehearsal_table([record(1, "kernels", (1, 0, 0)), record(1, "kernels", (1, 0, 0), "cpu")])
