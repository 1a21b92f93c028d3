"""The sections of the page, from hand-made records."""

import dataclasses

import pytest

from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.report.section import PageRecords
from experiments.report.sections import SECTIONS

CPU = {
    "accelerator": "Host",
    "machine": "here",
    "platform": "cpu",
    "strategy_devices": 1,
    "time": "2026-11-01",
}
GPU = CPU | {"accelerator": "Faster", "machine": "there", "platform": "gpu"}


def page_of(*rows: Record) -> PageRecords:
    return PageRecords(rows, {accelerator_label(row): "#000000" for row in rows})


def batch_record(batch: int, status: str = "ok", **metrics) -> Record:
    settings = {"model": "lenet5", "batch_size": batch}
    return Record(
        "batch_sweep",
        f"b{batch}",
        status,
        "not enough memory",
        settings=settings,
        metrics=metrics,
        provenance=CPU,
    )


def test_a_batch_that_ran_out_of_memory_is_a_cross():
    rows = [
        batch_record(2, images_per_second=100.0, memory_planned=10.0, memory_limit=50.0),
        batch_record(1, images_per_second=80.0, memory_planned=5.0, memory_limit=50.0),
        batch_record(8, "out_of_memory", memory_planned=60.0, memory_limit=50.0),
    ]
    section = SECTIONS["batches"](page_of(*rows))
    speed, memory = section.figures
    ran, failed = speed.traces
    assert (ran["x"], ran["y"]) == ([1, 2], [80.0, 100.0]) and (
        failed["x"],
        failed["marker"]["symbol"],
    ) == ([8], "x")
    assert "not enough memory" in failed["hovertext"][0]
    planned, limit, failed = memory.traces
    assert (
        planned["y"] == [5.0, 10.0, 60.0]
        and limit["y"] == [50.0] * 3
        and (failed["x"], failed["y"]) == ([8], [60.0])
    )
    assert section.sentences[0] == "largest batch that ran: 2; smallest that ran out of memory: 8"


def width_record(width: int, seconds: float, provenance: dict) -> Record:
    """The record of a network of 100 · width parameters."""
    metrics = {
        "parameters": 100 * width,
        "training_time": seconds,
        "copy_time": 1e-9,
        "compile_time": 1e-9,
        "setup_and_training_time": seconds,
    }
    settings = {"model": f"mlp:{width}", "batch_size": 128}
    return Record(
        "width_sweep",
        f"mlp-{width}-{provenance['accelerator']}",
        "ok",
        settings=settings,
        metrics=metrics,
        provenance=provenance,
    )


def test_the_crossover_of_two_devices():
    """10 times slower at 100 parameters, 10 times faster at 10,000: equal at 1,000 on log axes."""
    rows = [
        width_record(1, 1.0, CPU),
        width_record(100, 100.0, CPU),
        width_record(1, 10.0, GPU),
        width_record(100, 10.0, GPU),
    ]
    section = SECTIONS["widths"](page_of(*rows))
    assert "Faster against Host, training alone: wins from 1,000 parameters on" in section.sentences
    assert [trace["x"] for trace in section.figures[0].traces] == [[100, 10_000]] * 4
    single = SECTIONS["widths"](page_of(*rows[:2]))
    assert single.sentences == [
        "Only one kind of device was measured: there is nothing to compare it with yet."
    ]


def parity_record(provenance: dict, loss: list[float], twin: list[float]) -> Record:
    samples = {
        "loss": loss,
        "twin_loss": twin,
        "projection": [1.0],
        "twin_projection": [1.0],
        "norm": [1.0],
    }
    settings = {"model": "lenet5", "strategy": "jit", "point": "products highest"}
    return Record(
        "parity",
        provenance["accelerator"],
        "ok",
        settings=settings,
        samples=samples,
        provenance=provenance,
    )


def test_platforms_agree_if_rounding_explains_their_drift():
    host = parity_record(CPU, [2.0, 1.0], [2.0, 1.0001])
    same = SECTIONS["parity"](page_of(host, parity_record(GPU, [2.0, 1.0002], [2.0, 1.0001])))
    assert same.sentences[0].startswith("products highest: unchanged: losses differ by 2.0e-04")
    other = SECTIONS["parity"](page_of(host, parity_record(GPU, [2.0, 1.5], [2.0, 1.4999])))
    assert other.sentences[0].startswith(
        "products highest: different from step 2 on: losses differ by 3.3e-01"
    )
    drift, rounding = other.figures[0].traces
    assert drift["y"] == pytest.approx([0, 1 / 3]) and rounding["y"][1] == pytest.approx(
        1e-4, rel=1e-3
    )


def test_the_roof_is_the_minimum_of_peak_and_bandwidth():
    metrics = {
        "arithmetic_intensity": 10.0,
        "flops_per_second": 5e9,
        "peak_measured": 1e11,
        "bandwidth_measured": 1e9,
    }
    roof, points = (
        SECTIONS["roofline"](page_of(Record("train", "a", "ok", metrics=metrics, provenance=CPU)))
        .figures[0]
        .traces
    )
    assert dict(zip(roof["x"], roof["y"], strict=True))[10.0] == 1e10 and max(roof["y"]) == 1e11
    assert (points["x"], points["y"]) == ([10.0], [5e9])


def test_a_failed_record_is_a_row_with_its_message():
    row = Record("train", "a", "failed", "it broke", settings={"model": "lenet5"}, provenance=CPU)
    (table,) = SECTIONS["troubles"](page_of(row)).tables
    assert [tuple(row.cells) for row in table.rows] == [
        ("failed", "train: lenet5", "Host", "it broke")
    ]
    assert SECTIONS["troubles"](page_of()) is None


def test_the_descent_path_is_drawn_over_the_contours():
    samples = {
        "grid_weight": [0.0, 1.0],
        "grid_bias": [0.0, 1.0],
        "grid_cost": [1.0, 2.0, 3.0, 4.0],
        "path_weight": [1.0, 0.0],
        "path_bias": [1.0, 0.5],
    }
    metrics = {"training_time": 1.0, "epochs": 2, "steps": 2, "excess_loss": 0.1, "step_time": 0.5}
    settings = {"model": "full batch", "epochs": 2}
    row = Record(
        "descent", "a", "ok", settings=settings, metrics=metrics, samples=samples, provenance=CPU
    )
    contours, path = SECTIONS["descent"](page_of(row)).figures[0].traces
    assert contours["z"] == [[1.0, 2.0], [3.0, 4.0]] and (path["x"], path["y"]) == (
        [1.0, 0.0],
        [1.0, 0.5],
    )
    elsewhere = dataclasses.replace(row, provenance=CPU | {"accelerator": "GPU"})
    other_batch = dataclasses.replace(row, settings=settings | {"batch_size": 3})
    figures = SECTIONS["descent"](page_of(row, elsewhere, other_batch)).figures
    assert [len(figure.traces) for figure in figures] == [2, 2], "contours and a path each"


def fitting(strategy: str, largest: int, **provenance) -> Record:
    settings = {"model": "lenet5", "strategy": strategy, "precision": "float32", "target": "tpu"}
    settings |= {"batch_size": 128}
    metrics = {"largest_batch": largest}
    return Record(
        "preflight",
        f"{strategy}-{largest}",
        "ok",
        settings=settings,
        metrics=metrics,
        provenance={"accelerator": "TPU", "machine": "1a"} | provenance,
    )


def test_every_case_has_one_bar_of_its_own_largest_batch():
    """Bars that share a label would be added; one's own record takes the published one's place."""
    page = page_of(fitting("data", 40, elsewhere=True), fitting("pmap", 30), fitting("data", 50))
    section = SECTIONS["portability"](page)
    (bars,) = next(f for f in section.figures if f.title.startswith("Largest batch")).traces
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {
        "lenet5, data, float32 on tpu": 50,
        "lenet5, pmap, float32 on tpu": 30,
    }
    assert len(bars["y"]) == len(set(bars["y"])) == 2


def compiled(target: str, status: str, message: str = "") -> Record:
    settings = {
        "target": target,
        "model": "lenet5",
        "strategy": "data",
        "precision": "float32",
        "batch_size": 64,
    }
    return Record("preflight", target, status, message, settings=settings)


def test_many_targets_have_a_row_each_and_what_does_not_fit_is_listed():
    fitting_ones = [compiled(f"gpu-{number}", "predicted") for number in range(12)]
    others = [
        compiled("gpu-small", "out_of_memory", "20 of 16 GiB"),
        compiled("gpu-other", "unsupported", "lowered only: no compiler"),
    ]
    shares, refused, _ = SECTIONS["portability"](page_of(*fitting_ones, *others)).tables
    assert shares.headings == ("target", "data, float32")
    cells = dict(row.cells for row in shares.rows)
    assert (cells["gpu-3"], cells["gpu-small"]) == ("1 of 1", "0 of 1")
    assert cells["gpu-other"] == "1 lowered only"
    (row,) = refused.rows
    assert row.cells == ("lenet5", "float32", "gpu-small", "data", "64", "20 of 16 GiB")


def epoch_record(study: str, platform: str, **changes) -> Record:
    settings = {"model": "cats_vs_dogs", "precision": "float32", "batch_size": 16}
    provenance = {"accelerator": platform, "machine": platform, "platform": platform} | changes
    metrics = {"step_time": 2.0, "steps": 1250, "training_time": 2500.0}
    if study == "batch_sweep":
        metrics = {"step_time": 1.0}
    return Record(study, platform, "ok", settings=settings, metrics=metrics, provenance=provenance)


def test_published_epochs_and_ours_share_a_table_and_a_figure():
    published = epoch_record("train", "MX150", published=True, elsewhere=True)
    section = SECTIONS["documents"](page_of(published, epoch_record("batch_sweep", "cpu")))
    (table,), (figure,) = section.tables, section.figures
    assert len(table.rows) == 2
    points = {trace["name"]: (trace["x"], trace["y"]) for trace in figure.traces}
    question = "cats_vs_dogs, float32, batch 16: 1,250 steps"
    assert points == {
        "MX150 (published)": ([2500.0], [question]),
        "cpu": ([1250.0], [question]),
    }
