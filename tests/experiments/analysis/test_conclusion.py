"""Conclusions from the records of several accelerators, settings and sessions."""

from experiments import analysis
from experiments.records import Record


def batch(accelerator: str, size: int, status: str = "ok", **settings) -> Record:
    """A record of the batch sweep."""
    settings = {"model": "lenet5", "batch_size": size} | settings
    case = f"{accelerator}-{'-'.join(map(str, settings.values()))}"
    provenance = {"accelerator": accelerator, "machine": accelerator}
    return Record("batch_sweep", case, status, settings=settings, provenance=provenance)


def test_each_accelerator_has_its_own_conclusion_with_its_name():
    records = [batch("A", 32), batch("B", 32), batch("A", 64, "out_of_memory"), batch("B", 64)]
    assert analysis.conclusion("batch_sweep", records) == [
        "A: largest batch that ran: 32; smallest that ran out of memory: 64",
        "B: largest batch that ran: 64; the preset ended the sweep, not memory",
    ]
    assert analysis.conclusion("batch_sweep", records[::2]) == [
        "largest batch that ran: 32; smallest that ran out of memory: 64"
    ]


def test_records_of_different_settings_are_not_mixed():
    records = [
        batch("A", 32, model="vgg16"),
        batch("A", 8),
        batch("A", 64, "out_of_memory", model="vgg16"),
        batch("A", 16),
    ]
    assert analysis.conclusion("batch_sweep", records) == [
        "model vgg16: largest batch that ran: 32; smallest that ran out of memory: 64",
        "model lenet5: largest batch that ran: 16; the preset ended the sweep, not memory",
    ]


def test_only_the_newest_record_of_a_case_and_no_other_study_counts():
    records = [batch("A", 32, "out_of_memory"), batch("A", 32), Record("train", "x", "ok")]
    assert analysis.conclusion("batch_sweep", records) == [
        "largest batch that ran: 32; the preset ended the sweep, not memory"
    ]
    assert analysis.conclusion("train", records) == []
