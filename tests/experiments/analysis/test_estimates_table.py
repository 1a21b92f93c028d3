"""The tables of predicted and measured train steps, by hand."""

from experiments.analysis.benchmark_tables import estimates_table
from experiments.records import Record


def record(row: int, measured: list[float], own: float, others: float, machine: str = "a CPU"):
    return Record(
        "estimates",
        f"lenet5-{row}",
        "ok",
        settings={"model": "lenet5", "batch": 8, "image_size": 32},
        samples={"measured": measured, "predicted": [own], "predicted_from_others": [others]},
        provenance={
            "row": row,
            "accelerator": machine,
            "host_cores": 2,
            "peer_versions": {},
            "versions": {"jax": "0.10.2"},
        },
    )


def test_errors_are_of_the_shortest_measured_step():
    """100 ms at the shortest: 110 ms is 10 % more, 80 ms 20 % less."""
    row = estimates_table([record(0, [0.1, 0.3, 0.2], 0.11, 0.08)]).splitlines()[-1]
    assert row == "| lenet5 | 8 × 32² | 100 | 110 | +10% | 80 | -20% |"


def test_the_errors_of_a_machine_are_summarized_without_their_signs():
    rows = [record(0, [1.0], 0.9, 1.5), record(1, [1.0], 1.2, 0.8), record(2, [1.0], 1.4, 0.7)]
    assert (
        "Predicted: median error 20%, largest 40%; "
        "from other networks' kernels: median error 30%, largest 50%."
    ) in estimates_table(rows)


def test_each_machine_has_a_table():
    """Sorted by machine, and within it by row."""
    text = estimates_table(
        [
            record(1, [2.0], 2.0, 2.0),
            record(0, [1.0], 1.0, 1.0),
            record(0, [3.0], 3.3, 3.0, "CPU 0"),
        ]
    )
    lines = [line for line in text.splitlines() if line and line[:3] not in ("| n", "|--")]
    assert lines == [
        "CPU 0, 2 processors, jax 0.10.2:",
        "Predicted: median error 10%, largest 10%; "
        "from other networks' kernels: median error 0%, largest 0%.",
        "| lenet5 | 8 × 32² | 3,000 | 3,300 | +10% | 3,000 | +0% |",
        "a CPU, 2 processors, jax 0.10.2:",
        "Predicted: median error 0%, largest 0%; "
        "from other networks' kernels: median error 0%, largest 0%.",
        "| lenet5 | 8 × 32² | 1,000 | 1,000 | +0% | 1,000 | +0% |",
        "| lenet5 | 8 × 32² | 2,000 | 2,000 | +0% | 2,000 | +0% |",
    ]
