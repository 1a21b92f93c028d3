"""The portability matrix, from records alone."""

import dataclasses

from experiments.analysis import compile_matrix
from experiments.records import Record


def record(model: str, target: str, status: str, message: str = "", batch: int = 8) -> Record:
    settings = {
        "model": model,
        "precision": "bfloat16",
        "target": target,
        "strategy": "data",
        "batch_size": batch,
    }
    return Record("preflight", "x", status, message, settings=settings)


def test_the_matrix_has_a_cell_for_each_program_with_the_reason():
    records = [
        record("a", "tpu-v5e-4", "failed", "a crash"),
        record("a", "tpu-v5e-4", "predicted"),
        record("b", "tpu-v5e-4", "out_of_memory", "20 of 16"),
        record("b", "gpu-t4", "unsupported", "lowered only: install"),
        record("a", "gpu-t4", "failed", "why"),
        Record("train", "x", "ok"),
    ]
    matrix = compile_matrix.portability(records)
    assert matrix.counts == {"compiled": 1, "does not fit": 1, "lowered only": 1, "failed": 1}
    assert [row.model for row in matrix.rows] == ["a", "b"]
    assert [column.target for column in matrix.columns] == ["tpu-v5e-4", "gpu-t4"]
    assert matrix.cells[matrix.rows[0], matrix.columns[1]].reason == "why"


def test_a_failure_does_not_hide_behind_a_smaller_batch_nor_the_other_way_round():
    """16 images fit and 32 do not, in whichever order they were compiled; 64 do not either."""
    in_order = [
        record("a", "t", "out_of_memory", "20 of 16", batch=32),
        record("a", "t", "predicted", batch=16),
        record("a", "t", "predicted", batch=8),
        record("a", "t", "out_of_memory", "40 of 16", batch=64),
    ]
    for records in (in_order, in_order[::-1]):
        (cell,) = compile_matrix.portability(records).cells.values()
        assert (cell.state, cell.batch, cell.refused.batch) == ("compiled", 16, 32)
        assert cell.refused.reason == "20 of 16"


def test_images_of_two_sizes_are_two_networks():
    small, large = (
        dataclasses.replace(row, settings=row.settings | {"image_size": size})
        for size, row in (
            (224, record("a", "t", "predicted")),
            (448, record("a", "t", "out_of_memory", "20 of 16")),
        )
    )
    matrix = compile_matrix.portability([small, large, record("b", "t", "predicted")])
    assert [row.network for row in matrix.rows] == ["a at 224×224", "a at 448×448", "b"]
    assert matrix.counts == {"compiled": 2, "does not fit": 1}


def test_meshes_and_numbers_of_classes_have_cells_of_their_own():
    plain = record("a", "t", "predicted")
    wide, narrow, few = (
        dataclasses.replace(plain, settings=plain.settings | changes, status=status)
        for changes, status in (
            ({"strategy": "data_tensor", "mesh": "8x1"}, "predicted"),
            ({"strategy": "data_tensor", "mesh": "1x8", "microbatches": 2}, "out_of_memory"),
            ({"num_classes": 10, "channels": 1}, "out_of_memory"),
        )
    )
    matrix = compile_matrix.portability([plain, wide, narrow, few])
    assert matrix.counts == {"compiled": 2, "does not fit": 2}
    assert [row.network for row in matrix.rows] == ["a", "a, 10 classes, 1 channels"]
    strategies = [column.strategy for column in matrix.columns]
    assert strategies[1:] == ["data_tensor 8x1", "data_tensor 1x8, 2 microbatches"]


def test_a_batch_that_was_only_lowered_is_not_refused():
    records = [record("a", "t", "predicted", batch=8), record("a", "t", "unsupported", batch=16)]
    (cell,) = compile_matrix.portability(records).cells.values()
    assert (cell.batch, cell.refused) == (8, None)


def test_a_later_crash_does_not_hide_an_answer_and_a_later_answer_counts():
    compiled, crash = record("a", "t", "predicted"), record("a", "t", "failed", "a crash")
    (cell,) = compile_matrix.portability([compiled, crash]).cells.values()
    assert cell.state == "compiled" and cell.refused is None
    refused = record("a", "t", "out_of_memory", "17 of 16")
    (cell,) = compile_matrix.portability([compiled, crash, refused]).cells.values()
    assert (cell.state, cell.reason) == ("does not fit", "17 of 16")


def test_a_row_for_each_target_says_how_many_networks_compile():
    """Of two networks one fits the first target; the second target has no compiler."""
    records = [
        record("a", "tpu-v5e-4", "predicted"),
        record("b", "tpu-v5e-4", "out_of_memory", "20 of 16"),
        record("a", "gpu-mi300x", "unsupported", "lowered only: no compiler"),
    ]
    assert compile_matrix.shares_table(records) == (
        "3 programs. Compiled: 1; does not fit: 1; lowered only: 1.\n\n"
        "| target | data, bfloat16 |\n"
        "|---|---|\n"
        "| gpu-mi300x | 1 lowered only |\n"
        "| tpu-v5e-4 | 1 of 2 |"
    )
