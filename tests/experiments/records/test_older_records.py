"""Records written by version 0.1 are read, and the same command still produces the same record.

`version_0_1` has records that version 0.1 wrote on an AMD EPYC with jax 0.10.2, one or two of each
study; sample lists were cut to 20 values, except in the record of `train`.
"""

import json
from pathlib import Path

import pytest

from experiments import records, run
from experiments.records.record import RENAMED_PROVENANCE, RENAMED_SAMPLES
from experiments.studies import STUDIES, train

FOLDER = Path(__file__).parent / "version_0_1"
FILES = sorted(FOLDER.glob("*/*.json"))

TRAIN = [
    "--study=train",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=2",
    "--batch-size=20",
]
# Metrics that do not depend on the clock, the memory or the machine's peak.
EXACT = (
    "flops_per_step",
    "closed_form_flops_per_step",
    "parameters",
    "steps",
    "epochs",
    "test_accuracy",
    "validation_accuracy",
)
CLOSE = ("training_loss", "test_loss")
# Present only if the device, its peak, the cache or the noise allow it.
CONDITIONAL = {"cache_load_time", "compile_time", "time_to_target", "compiler_flops_per_step"}
# Provenance that later versions added; the mesh and the collectives are those of sharded steps.
NEW_PROVENANCE = {"cpu_bfloat16", "driver", "mesh", "collectives", "winograd"}


def read(path: Path) -> tuple[dict, records.Record]:
    """A file as JSON, and the record that is loaded from it."""
    (record,), problems = records.load([path])
    assert problems == []
    return json.loads(path.read_text()), record


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name[:40]}")
def test_a_record_of_version_0_1_is_complete(path):
    entry, record = read(path)
    assert (
        record.study in STUDIES and record.case == path.name.rpartition(".")[0].rpartition(".")[0]
    )
    assert record.metrics == entry["metrics"] and record.settings == entry["settings"]
    samples = {RENAMED_SAMPLES.get(name, name): v for name, v in entry["samples"].items()}
    assert record.samples == samples
    origin = {RENAMED_PROVENANCE.get(name, name): v for name, v in entry["provenance"].items()}
    assert record.provenance == origin
    assert record.dataset_summary == entry.get("data_look", {})


def test_renamed_fields_have_their_new_names():
    _, record = read(next((FOLDER / "train").glob("*.json")))
    assert record.dataset_summary["examples"]["train"] > 0
    assert record.samples["dispatch_session"][0] == 1
    assert record.provenance["sessions"] == 1


def run_again(arguments: list[str], tmp_path: Path) -> list[records.Record]:
    assert run.main([*arguments, f"--results={tmp_path}"]) == 0
    again, problems = records.load([tmp_path])
    assert problems == []
    return again


def without_digest(case: str) -> list[str]:
    """The parts of a case's name that do not depend on the machine."""
    return case.split("-")[:-2]


def test_the_same_command_produces_the_same_record(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "IDLE_SECONDS", 0)
    _, before = read(next((FOLDER / "train").glob("*.json")))
    (after,) = run_again([*TRAIN, "--device=cpu:1"], tmp_path)
    assert without_digest(after.case) == without_digest(before.case)
    assert after.settings == before.settings
    assert set(after.metrics) ^ set(before.metrics) <= CONDITIONAL
    assert after.samples.keys() == before.samples.keys()
    assert after.provenance.keys() - NEW_PROVENANCE == before.provenance.keys()
    assert [epoch.keys() for epoch in after.curves] == [epoch.keys() for epoch in before.curves]
    assert after.dataset_summary == before.dataset_summary
    assert after.mistakes.keys() == before.mistakes.keys()
    for name in EXACT:
        assert after.metrics[name] == before.metrics[name], name
    # Without half precision the scale of the loss, four bytes, is not read any more.
    assert after.metrics["bytes_per_step"] == before.metrics["bytes_per_step"] - 4
    for name in CLOSE:
        assert after.metrics[name] == pytest.approx(before.metrics[name], rel=1e-4), name


@pytest.mark.parametrize("strategy", ["jit", "pmap"])
def test_the_same_strategy_produces_the_same_record(strategy, tmp_path):
    _, before = read(next((FOLDER / "strategies").glob(f"*-{strategy}-*.json")))
    options = ["--study=strategies", "--device=cpu:2", "--model=lenet_like"]
    (after,) = run_again([*options, f"--strategy={strategy}"], tmp_path)
    assert without_digest(after.case) == without_digest(before.case)
    assert after.settings == before.settings
    assert after.metrics.keys() - {"bytes_exchanged"} == before.metrics.keys()
    assert after.provenance.keys() - NEW_PROVENANCE == before.provenance.keys()
    for name in ("bytes_summed", "flops_per_step", "parameters"):
        assert after.metrics[name] == before.metrics[name], name
