"""The portability matrix, from records alone."""

from experiments.analysis import compile_matrix
from experiments.records import Record


def record(model: str, target: str, status: str, message: str = "") -> Record:
    settings = {
        "model": model,
        "precision": "bfloat16",
        "target": target,
        "strategy": "data",
        "batch_size": 8,
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
