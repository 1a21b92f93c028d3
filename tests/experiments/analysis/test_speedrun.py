"""Means over seeds, ratios of means, and the table of the study of short runs."""

import dataclasses

import pytest

from experiments import analysis
from experiments.analysis import speedrun
from experiments.records import Record

MACHINE = {"accelerator": "AMD EPYC", "host_cores": 2, "versions": {"jax": "0.10.2"}}


def record(library: str, seed: int, accuracy: float, seconds: float, status: str = "ok") -> Record:
    metrics = {
        "test_accuracy_multicrop": accuracy,
        "test_accuracy": accuracy - 0.01,
        "training_time": seconds,
        "steps": 200,
    }
    peers = {"peer_versions": {"torch": "2.13.0"}} if library == "pytorch" else {}
    return Record(
        "speedrun",
        f"{library}-{seed}",
        status,
        settings={"library": library, "seed": seed, "precision": "float32"},
        metrics=metrics,
        provenance=MACHINE | peers,
    )


RECORDS = [
    record("pytorch", 0, 0.94, 1400.0),
    record("pytorch", 1, 0.93, 1300.0),
    record("jaxcnn", 0, 0.942, 800.0),
    record("jaxcnn", 1, 0.938, 700.0),
    record("jaxcnn", 2, 0.94, 600.0),
    record("jaxcnn", 3, 0.5, 1.0, status="failed"),
]


def test_the_conclusion_has_means_ranges_and_the_ratio_of_means():
    assert speedrun.conclusion(RECORDS) == [
        "jaxcnn: accuracy 94.00 % (93.80 to 94.20) with six views after 200 steps in 700.0 s",
        "pytorch: accuracy 93.50 % (93.00 to 94.00) with six views after 200 steps in 1350.0 s",
        # exp(6.5442 - 7.2072), within exp(3.42 · 0.0910): Welch's t test has 2.66 degrees
        "jaxcnn takes 0.52 times as long as pytorch (0.38 to 0.70, 95 %)",
    ]


def test_runs_by_another_recipe_are_no_seeds_of_this_one():
    def by(one, **settings):
        case = f"{one.case}-{settings}"
        return dataclasses.replace(one, case=case, settings=one.settings | settings)

    recipes = [by(one, label_smoothing=0.2) for one in RECORDS[:3]]
    recipes += [by(one, label_smoothing=0.0) for one in RECORDS[1:2]]
    assert analysis.conclusion("speedrun", recipes) == [
        "label smoothing 0.2: jaxcnn: accuracy 94.20 % with six views after 200 steps in 800.0 s",
        "label smoothing 0.2: pytorch: accuracy 93.50 % (93.00 to 94.00) with six views after 200 "
        "steps in 1350.0 s",
        "label smoothing 0.2: jaxcnn takes 0.59 times as long as pytorch, which may be chance: one "
        "of them was run once",
        "label smoothing 0.0: pytorch: accuracy 93.00 % with six views after 200 steps in 1300.0 s",
    ]


def test_one_library_alone_has_no_ratio():
    (line,) = speedrun.conclusion([RECORDS[0]])
    assert line.startswith("pytorch: accuracy 94.00 % with six views")


def test_the_table_names_the_machine_the_versions_and_the_precision():
    lines = speedrun.speedrun_table(RECORDS).splitlines()
    assert lines[:2] == ["AMD EPYC, 2 processors, jax 0.10.2, float32:", ""]
    assert lines[5].startswith("| pytorch 2.13.0 | 2 | 200 |")
    assert lines[4] == (
        "| jaxcnn | 3 | 200 | 94.00 % (93.80 to 94.20) | 93.00 % (92.80 to 93.20) | 700 |"
    )
    assert lines[-2:] == ["", "jaxcnn takes 0.52 times as long as pytorch (0.38 to 0.70, 95 %)."]
    assert speedrun.speedrun_table([]) == speedrun.NONE_YET


def test_libraries_are_compared_on_one_accelerator():
    ours = dataclasses.replace(RECORDS[2], provenance=MACHINE | {"accelerator": "A GPU"})
    text = speedrun.speedrun_table([*RECORDS[:2], ours])
    assert "takes" not in text
    parts = map(speedrun.speedrun_table, ([ours], RECORDS[:2]))
    assert text == "\n\n".join(parts)


def test_runs_in_another_precision_have_a_table_of_their_own():
    settings = RECORDS[2].settings | {"precision": "bfloat16"}
    half = dataclasses.replace(RECORDS[2], settings=settings)
    headings = [
        line
        for line in speedrun.speedrun_table([half, RECORDS[3]]).splitlines()
        if line[-1:] == ":"
    ]
    place = "AMD EPYC, 2 processors, jax 0.10.2"
    assert headings == [f"{place}, bfloat16:", f"{place}, float32:"]


@pytest.mark.parametrize("count", [1, 3])
def test_the_median_is_over_seeds(count):
    (summary,) = speedrun.summarize(RECORDS[2 : 2 + count])
    assert summary.median_seconds == {1: 800.0, 3: 700.0}[count]
