"""The tables of the documents are those of the published records."""

import json
import re

import pytest

from experiments import documents
from experiments.analysis.peers_tables import NONE_YET, peers_tables
from experiments.records import Record, to_json
from jaxcnn.errors import InputError
from tests.support.paths import ROOT

# A time, a rate or an accuracy; a column of them; or two decimal fractions and no code.
MEASURED = re.compile(
    r"\d (?:[nµm]?s|[kMGT]?FLOP/s|[kMGT]?B/s|1/s|images/s|J|W)\b"
    r"|, ms\b|÷"
    r"|\d\.\d+ %"
    r"|^\|[^`]*\| \d+\.\d+ \| \d+\.\d+ \|"
)
MARKED = "Before.\n\n<!-- from published/peers on cpu -->\nold\n<!-- end -->\n\nAfter.\n"


def make_record(
    model: str,
    status: str = "ok",
    *,
    machine: str = "1a",
    launches: int = 5,
    platform: str = "cpu",
    accelerator: str = "A CPU",
    **metrics: float,
) -> Record:
    provenance = {
        "machine": machine,
        "platform": platform,
        "accelerator": accelerator,
        "host_cpu": "A CPU",
        "host_cores": 2,
        "versions": {"jax": "0.10.2", "numpy": "2"},
        "peer_versions": {"torch": "2.13.0"},
        "time": f"2026-11-0{len(model)}T10:00:00+00:00",
        "best_peer_train": "torch compiled",
        "best_peer_inference": None,
    }
    settings = {"model": model, "image_size": 28, "batch_size": 8, "launches": launches}
    message = "" if status == "ok" else "ours: killed"
    return Record("peers", model, status, message, settings, metrics, provenance=provenance)


RECORDS = [
    make_record(
        "a",
        flops_per_step=6.15e8,
        peak_measured=1e11,
        step_time=0.0123,
        best_peer_step_time=0.0246,
        train_over_best_peer=0.5,
        train_over_best_peer_low=0.45,
        train_over_best_peer_high=0.556,
        many_steps_over_best_peer=0.4,
        call_time=0.002,
        frozen_call_time=0.0015,
        time_to_first_step=3.14,
    ),
    make_record(
        "bb",
        step_time=1.5,
        train_over_best_peer=2.0,
        frozen_inference_over_best_peer=0.75,
        memory_over_pytorch=1.1,
    ),
    make_record("ccc", "failed"),
]
EXPECTED = """\
A CPU, 2 cores, jax 0.10.2, torch 2.13.0, 5 launches, 2026-11-03.

The train step:

| network | batch | ours, ms | best peer, ms | ratio | many steps | at peak | best peer |
|---|---|---|---|---|---|---|---|
| `a`, 28 | 8 | 12.3 | 24.6 | 0.50 (0.45 to 0.56) | 0.40 | 0.25 | torch compiled |
| `bb`, 28 | 8 | 1500 | – | 2.00 | – | – | torch compiled |
| geometric mean |  |  |  | 1.00 | 0.40 | 0.25 |  |

Inference of a batch:

| network | batch | ours, ms | frozen, ms | best peer, ms | ratio | frozen | at peak | best peer |
|---|---|---|---|---|---|---|---|---|
| `a`, 28 | 8 | 2 | 1.5 | – | – | – | – | – |
| `bb`, 28 | 8 | – | – | – | – | 0.75 | – | – |
| geometric mean |  |  |  |  |  | 0.75 |  |  |

Train step over plain Flax's, peak memory over PyTorch's, and the first step:

| network | batch | over Flax | memory | first step | again | share of peak |
|---|---|---|---|---|---|---|
| `a`, 28 | 8 | – | – | 3.1 s | – | – |
| `bb`, 28 | 8 | – | 1.10 | – | – | – |
| geometric mean |  |  | 1.10 |  |  |  |

Not compared: `ccc`, 28 (ours: killed)."""


def test_the_documents_have_the_tables_of_the_published_records():
    """If this fails: ``python -m experiments.documents``."""
    regions = []
    for path in documents.document_paths(ROOT):
        text = path.read_text()
        regions += [folder for _, folder, _ in documents.REGION.findall(text)]
        assert documents.with_tables(text) == text, path.name
    assert sorted(regions) == sorted(documents.TABLES)


def test_every_table_of_measured_figures_is_made_from_records():
    """Outside these regions, no cell of a table is a number with a unit of measured quantities."""
    for path in documents.document_paths(ROOT):
        by_hand = documents.REGION.sub("", path.read_text())
        rows = [line for line in by_hand.splitlines() if line.startswith("|")]
        assert [row for row in rows if MEASURED.search(row)] == [], path.name


@pytest.mark.parametrize(
    ("row", "is_measured"),
    [
        ("| `lenet5` | 99.01 % | 6.94 ms |", True),
        ("| once | 104.0 | 0.44 |", True),
        ("| `lenet_like` | 0.30 | 5.8 s |", True),
        ("| step, ms | ours ÷ theirs |", True),
        ("| 3×3 | 2×2 pixels | 16 | 36 |", False),
        ("| `resnet50` | 224×224×3 | 25,557,032 | 8,178.37 | `torchvision` |", False),
    ],
)
def test_what_counts_as_a_measured_figure(row, is_measured):
    assert bool(MEASURED.search(row)) == is_measured


def test_tables_by_hand():
    assert peers_tables(RECORDS) == EXPECTED
    assert peers_tables([]) == NONE_YET


def test_each_machine_has_tables_of_its_own():
    other = make_record("d", machine="2b")
    text = peers_tables([other, *RECORDS])
    assert text == f"{EXPECTED}\n\n{peers_tables([other])}"


def test_the_command_rewrites_a_document(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "published" / "peers"
    folder.mkdir(parents=True)
    for record in RECORDS:
        (folder / f"{record.case}.json").write_text(json.dumps(to_json(record)))
    document = tmp_path / "cpu.md"
    document.write_text(MARKED)
    monkeypatch.setattr(documents.with_tables, "__defaults__", (tmp_path / "published",))
    assert documents.main([f"--root={tmp_path}"]) == 0
    assert "cpu.md: rewritten" in capsys.readouterr().out.replace("\n", "")
    written = document.read_text()
    assert written == MARKED.replace("old", peers_tables(RECORDS))
    assert documents.main([f"--root={tmp_path}"]) == 0
    assert document.read_text() == written and capsys.readouterr().out == ""


def test_the_records_of_other_platforms_are_left_out(tmp_path):
    (tmp_path / "peers").mkdir()
    gpu = make_record("d", platform="gpu", accelerator="A GPU", launches=1)
    for record in [*RECORDS, gpu]:
        (tmp_path / "peers" / f"{record.case}.json").write_text(json.dumps(to_json(record)))
    assert documents.with_tables(MARKED, tmp_path) == MARKED.replace("old", EXPECTED)
    text = documents.with_tables(MARKED.replace("on cpu", "on gpu"), tmp_path)
    assert "\nA GPU; A CPU, 2 cores, jax 0.10.2, torch 2.13.0, 1 launch, 2026-11-01.\n" in text


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([RECORDS[0], make_record("bb", launches=3)], "several numbers of launches"),
        ([RECORDS[0], None], "left out"),
    ],
)
def test_records_that_do_not_fit_in_one_table_are_an_error(records, message, tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(record and to_json(record)))
    with pytest.raises(InputError, match=message):
        documents.with_tables(MARKED, tmp_path)


def test_an_unknown_table_and_a_folder_without_documents_are_errors(tmp_path, capsys):
    with pytest.raises(
        InputError, match="no table of published/speed: known are benchmarks/convolutions, "
    ):
        documents.with_tables(MARKED.replace("peers on cpu", "speed"), tmp_path)
    assert documents.main([f"--root={tmp_path}"]) == 2
    assert "no documents there" in capsys.readouterr().err.replace("\n", "")
