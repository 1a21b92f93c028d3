"""The tiles and the table at the top of the page, from four synthetic accelerators."""

import dataclasses

from experiments.report import headline, sentences
from experiments.report.page import build_page
from tests.support import four_accelerators as four

RECORDS = four.records()


def test_the_tiles_answer_fastest_cheapest_and_crossover():
    fastest, cheapest, crossover = headline.tiles(RECORDS)
    assert (fastest.question, fastest.answer) == ("Fastest", "NVIDIA H100 80GB HBM3 (synthetic)")
    assert fastest.detail == (
        "24,000 images/s on resnet18_cifar, cifar10, 2.67 × as fast as TPU v5 lite (synthetic), "
        "160 × as fast as AMD EPYC 7B12 (synthetic)"
    )
    assert (cheapest.question, cheapest.answer) == ("Cheapest", "TPU v5 lite (synthetic)")
    assert cheapest.detail.startswith("$0.019 per million images; NVIDIA H100")
    assert (crossover.question, crossover.answer) == ("Faster than a CPU from", "32,000 parameters")
    assert "NVIDIA Tesla T4 (synthetic): 220,000 parameters" in crossover.detail
    assert sentences(RECORDS)[:3] == [tile.sentence for tile in (fastest, cheapest, crossover)]


def test_the_crossover_is_that_of_the_devices_of_the_sweep():
    """Not of eight of them, which another study measured."""
    sweep = next(record for record in RECORDS if record.study == "width_sweep")
    eight = dataclasses.replace(
        sweep, study="collectives", provenance=sweep.provenance | {"strategy_devices": 8}
    )
    assert headline.tiles([eight, *RECORDS]) == headline.tiles(RECORDS)


def test_the_table_has_a_row_for_each_accelerator():
    table = headline.table(RECORDS)
    assert table.headings == (
        "accelerator", "images/s", "$ / million images", "time to 90 %", "$ to 90 %", "MFU",
        "test accuracy",
    )  # fmt: skip
    rows = {row.cells[0]: (row.cells[1:], row.detail) for row in table.rows}
    assert [*rows] == [
        "NVIDIA H100 80GB HBM3 (synthetic)",
        "TPU v5 lite (synthetic)",
        "NVIDIA Tesla T4 (synthetic)",
        "AMD EPYC 7B12 (synthetic)",
    ]
    cells, detail = rows["AMD EPYC 7B12 (synthetic)"]
    assert cells == ("150", "$0.70", "4,000 s", "$0.42", "41 % ‡", "93.50 %")
    assert detail == "float32, batch 128"
    assert any(note.startswith("‡ of the peak measured there") for note in table.notes)


def test_a_share_above_the_measured_peak_has_its_reason_beside_it():
    record = next(r for r in four.records() if r.study == "train" and "EPYC" in r.case)
    record.metrics["mfu_measured_peak"] = 1.3
    table = headline.table([record])
    assert table.rows[0].cells[5] == "130 % ‡ †"
    assert any(note.startswith("† ") for note in table.notes)


def test_one_accelerator_says_how_to_compare():
    alone = [record for record in four.records() if record.provenance["platform"] == "cpu"]
    for record in alone:
        record.metrics.pop("cost_per_million_images", None)
    fastest, cheapest, crossover = headline.tiles(alone)
    assert "the only one measured" in fastest.detail and "--results A B" in fastest.detail
    assert (cheapest.answer, crossover.answer) == ("unknown", "not measured")
    assert "--price=" in cheapest.detail and "--study=width_sweep" in crossover.detail
    assert not any("Cheapest" in sentence for sentence in sentences(alone))
    assert headline.tiles([]) == [] and headline.table([]) is None


def test_without_training_there_are_no_tiles(tmp_path):
    assert 'class="tile"' not in build_page([tmp_path])
