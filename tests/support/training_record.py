"""A training record with something in every field, and one of a failed case."""

from experiments.records import Record

_SERIES = {
    "name": "cpu",
    "unit": "%",
    "source": "psutil",
    "times": [0.0, 1.0],
    "values": [5.0, 80.0],
}


def training_record(case: str = "a", status: str = "ok", **changes) -> Record:
    """A record of the study ``train``; `changes` are fields of `Record`."""
    fields = {
        "settings": {"model": "lenet5", "batch_size": 32, "stages": [1.0, 0.5], "inner": {"k": 3}},
        "metrics": {"step_time": 3.6788860196632896e-07, "parameters": 61706},
        "samples": {"loss": [2.5, None]},
        "curves": [{"epoch": 1, "train_loss": 0.5}, {"epoch": 2, "train_loss": 0.25}],
        "utilisation": {"series": [_SERIES]},
        "provenance": {
            "accelerator": "A",
            "machine": "1a",
            "time": "2026-01-01",
            "versions": {"jax": "0.10.2"},
        },
    }
    return Record("train", case, status, **(fields | changes))


FAILED = training_record(
    "b",
    "failed",
    settings={"model": "mlp", "batch_size": None},
    metrics={"step_time": None},
    curves=[],
    samples={},
)
