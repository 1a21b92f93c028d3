"""What the records of several accelerators, questions and sittings say together."""

from experiments import analysis
from experiments.records import Record


def swept(accelerator: str, batch: int, status: str = "ok", **settings) -> Record:
    settings = {"model": "lenet5", "batch_size": batch} | settings
    case = f"{accelerator}-{'-'.join(map(str, settings.values()))}"
    return Record(
        "batch_sweep",
        case,
        status,
        settings=settings,
        provenance={"accelerator": accelerator, "machine": accelerator},
    )


def test_each_accelerator_speaks_for_itself_by_name():
    rows = [swept("A", 32), swept("B", 32), swept("A", 64, "out_of_memory"), swept("B", 64)]
    assert analysis.conclusion("batch_sweep", rows) == [
        "A: largest batch that ran 32, smallest that found no memory 64",
        "B: largest batch 64: the preset ended the sweep, not memory",
    ]
    assert analysis.conclusion("batch_sweep", rows[::2]) == [
        "largest batch that ran 32, smallest that found no memory 64"
    ]


def test_questions_are_not_mixed():
    rows = [
        swept("A", 32, model="vgg16"),
        swept("A", 8),
        swept("A", 64, "out_of_memory", model="vgg16"),
        swept("A", 16),
    ]
    assert analysis.conclusion("batch_sweep", rows) == [
        "largest batch that ran 32, smallest that found no memory 64",
        "largest batch 16: the preset ended the sweep, not memory",
    ]


def test_of_a_case_the_newest_record_counts_and_other_studies_do_not():
    rows = [swept("A", 32, "out_of_memory"), swept("A", 32), Record("train", "x", "ok")]
    assert analysis.conclusion("batch_sweep", rows) == [
        "largest batch 32: the preset ended the sweep, not memory"
    ]
    assert analysis.conclusion("train", rows) == []
