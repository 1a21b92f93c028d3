"""Training runs over seeds, from hand-made records."""

import dataclasses

import pytest

from experiments import analysis
from experiments.analysis import seeds
from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report.section import PageRecords
from experiments.report.sections import SECTIONS

HERE = {"accelerator": "CPU", "machine": "1a", "strategy_devices": 1}


def run(seed: int, accuracies: list[float], target: float | None = None, **settings) -> Record:
    """A training run of one second an epoch; its test accuracy is the last validation accuracy."""
    curve = [
        {"epoch": epoch, "seconds": float(epoch), "validation_accuracy": accuracy}
        for epoch, accuracy in enumerate(accuracies, 1)
    ]
    metrics = {"test_accuracy": accuracies[-1]}
    if target is not None:
        metrics |= {"time_to_target": target, "cost_to_target": target / 100}
    settings = {"model": "lenet5", "dataset": "mnist", "seed": seed} | settings
    return Record(
        "train",
        f"lenet5-s{seed}",
        "ok",
        settings=settings,
        metrics=metrics,
        curves=curve,
        provenance=HERE,
    )


RUNS = [run(0, [0.5, 0.8], 1.0), run(1, [0.6, 0.9], 3.0), run(2, [0.4, 0.7, 0.7])]


def test_runs_that_differ_in_the_seed_alone_are_a_group():
    other = run(0, [0.5], batch_size=64)
    elsewhere = Record("train", "x", "ok", settings=RUNS[0].settings, provenance={"machine": "2b"})
    failed = Record("train", "y", "failed", settings=run(3, [0.1]).settings, provenance=HERE)
    assert seeds.groups([*RUNS, other, elsewhere, failed]) == [RUNS]


def test_a_seed_counts_once_and_versions_of_jax_are_not_mixed():
    older, newer = run(0, [0.5]), run(0, [0.6])
    assert seeds.groups([older, newer]) == []
    assert seeds.groups([older, newer, RUNS[1]]) == [[newer, RUNS[1]]]
    other = dataclasses.replace(RUNS[1], provenance=HERE | {"versions": {"jax": "0.12.0"}})
    assert seeds.groups([newer, other]) == []


def test_means_and_standard_deviations_by_hand():
    accuracy = seeds.spread(RUNS, "test_accuracy")
    assert (accuracy.mean, accuracy.deviation) == (pytest.approx(0.8), pytest.approx(0.1))
    assert seeds.text(RUNS, "test_accuracy") == "80 % ± 10 %"
    assert seeds.text(RUNS, "time_to_target") == "2 s ± 1.414 s (2 of 3)"
    assert seeds.spread(RUNS, "energy_to_target") is None
    assert seeds.text(RUNS, "energy_to_target") == ""


def test_the_band_covers_the_epochs_that_all_seeds_have():
    band = seeds.band(RUNS)
    assert (band.epochs, band.seconds) == ([1, 2], [1.0, 2.0])
    assert band.mean == pytest.approx([0.5, 0.8])
    assert (band.low, band.high) == ([0.4, 0.7], [0.6, 0.9])
    assert seeds.band([Record("train", "a", "ok")]) is None


def test_the_conclusion_of_training_runs():
    (line,) = analysis.conclusion("train", RUNS)
    assert line == (
        "over 3 seeds, lenet5, mnist: test accuracy 80 % ± 10 %; time to the target 2 s "
        "± 1.414 s (2 of 3); cost to the target $0.020 ± $0.014 (2 of 3)"
    )
    assert analysis.conclusion("train", RUNS[:1]) == []


def test_the_section_has_a_row_a_band_and_a_mean_for_each_group():
    page = PageRecords(RUNS, {accelerator_label(RUNS[0]): "#000000"})
    section = SECTIONS["seeds"](page)
    ((row,), (figure,)) = section.tables[0].rows, section.figures
    assert row.cells[1] == "3" and "seed" in row.cells[0]
    area, mean = figure.traces
    assert area["x"] == [1.0, 2.0, 2.0, 1.0] and area["y"] == [0.4, 0.7, 0.9, 0.6]
    assert mean["y"] == pytest.approx([0.5, 0.8]) and not area["showlegend"]
    assert SECTIONS["seeds"](PageRecords(RUNS[:1], page.colors)) is None


def test_the_table_has_a_row_for_each_group():
    settings = {"learning_rate": 0.1, "schedule": "cosine", "normalise": "unit"}
    settings |= {"batch_size": 8, "epochs": 2, "target_accuracy": 0.75}
    runs = [dataclasses.replace(each, settings=each.settings | settings) for each in RUNS]
    facts = HERE | {"host_cores": 2, "versions": {"jax": "0.10.2"}}
    runs = [dataclasses.replace(each, provenance=facts) for each in runs]
    lines = seeds.seeds_table(runs).splitlines()
    assert lines[0] == "CPU, 2 processors, jax 0.10.2; mnist, batch 8, 2 epochs:"
    assert lines[2].endswith("| test accuracy | to 75% |")
    assert lines[4:] == [
        "| lenet5 | 0.1 | cosine | unit | 3 | 80 % ± 10 % | 2 s ± 1.414 s (2 of 3) |"
    ]
