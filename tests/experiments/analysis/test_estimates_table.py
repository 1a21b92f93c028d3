"""The table of predicted and measured train steps, by hand."""

from experiments.analysis.benchmark_tables import estimates_table
from experiments.records import Record


def test_errors_are_of_the_shortest_measured_step():
    """100 ms at the shortest: 110 ms is 10 % more, 80 ms 20 % less."""
    record = Record(
        "estimates",
        "lenet5-8-32",
        "ok",
        settings={"model": "lenet5", "batch": 8, "image_size": 32},
        samples={
            "measured": [0.1, 0.3, 0.2],
            "predicted": [0.11],
            "predicted_from_others": [0.08],
        },
        provenance={
            "row": 0,
            "accelerator": "a CPU",
            "host_cores": 2,
            "peer_versions": {},
            "versions": {"jax": "0.10.2"},
        },
    )
    row = estimates_table([record]).splitlines()[-1]
    assert row == "| lenet5 | 8 × 32² | 100 | 110 | +10% | 80 | -20% |"
