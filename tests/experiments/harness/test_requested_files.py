"""``--profile`` and ``--log-dir`` of a case that has a record already."""

import pytest
from etils import epath

from experiments import run
from experiments.config import RunConfig
from experiments.harness.requested_files import missing
from experiments.harness.study import Case
from experiments.studies import STUDIES

SMALL = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=1",
    "--batch-size=20",
]


@pytest.fixture
def scratch(tmp_path) -> epath.Path:
    return epath.Path(tmp_path) / "results" / "train" / "lenet5-123.checkpoints"


def case(**options) -> Case:
    return Case(RunConfig(**options), {}, ("lenet5",))


def test_files_that_are_not_there_are_missing(scratch, tmp_path):
    logs = str(tmp_path / "logs")
    requested = case(profile=True, log_dir=logs)
    scalars = f"scalars in {logs}/train/lenet5-123 (--log-dir)"
    assert missing(STUDIES["train"], case(), scratch) == []
    assert missing(STUDIES["train"], requested, scratch) == ["a profile (--profile)", scalars]
    (tmp_path / "logs" / "train" / "lenet5-123").mkdir(parents=True)
    (scratch.parent / "lenet5-123.profile" / "plugins" / "profile" / "1").mkdir(parents=True)
    assert missing(STUDIES["train"], requested, scratch) == ["a profile (--profile)", scalars]
    (tmp_path / "logs" / "train" / "lenet5-123" / "events.out.1").write_text("")
    assert missing(STUDIES["train"], requested, scratch) == ["a profile (--profile)"]
    (scratch.parent / "lenet5-123.profile/plugins/profile/1/vm.xplane.pb").write_text("")
    assert missing(STUDIES["train"], requested, scratch) == []


def test_only_training_runs_have_such_files(scratch):
    requested = case(profile=True, log_dir="logs")
    assert missing(STUDIES["kernels"], requested, scratch) == []
    forest = Case(requested.config, {"library": "scikit-learn"}, ("forest",))
    assert missing(STUDIES["search"], forest, scratch) == []
    assert len(missing(STUDIES["search"], requested, scratch)) == 2


def test_a_case_without_the_requested_files_is_measured_again_once(capsys, tmp_path):
    pytest.importorskip("tensorboardX")
    results, logs = tmp_path / "results", tmp_path / "logs"
    plain = [*SMALL, f"--results={results}"]
    requested = [*plain, "--profile", f"--log-dir={logs}"]

    def records() -> int:
        return len(list((results / "train").glob("*.json")))

    assert run.main(plain) == 0
    assert "measured again" not in capsys.readouterr().out
    assert run.main([*requested, "--dry-run"]) == 0
    assert "1 of 1 cases to measure" in capsys.readouterr().out
    assert run.main(requested) == 0
    output = capsys.readouterr().out
    assert "measured again: the record of " in output and "3 dispatches of " in output
    assert "is without a profile (--profile) and scalars in " in output
    (profile,) = (results / "train").glob("*.profile")
    (scalars,) = (logs / "train").glob("*")
    assert records() == 2 and list(profile.glob("plugins/profile/*/*.xplane.pb"))

    assert run.main(requested) == run.main([*requested, "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert f"profile   {profile}\n" in output and f"scalars   {scalars}; " in output
    assert (
        "already measured on " in output and "nothing to measure: every case has a record" in output
    )
    assert "measured again" not in output and records() == 2


def test_studies_without_training_runs_have_no_use_for_them(capsys, tmp_path):
    arguments = ["--device=cpu:1", "--dry-run", f"--results={tmp_path}", "--profile"]
    assert run.main([*arguments, "--study=descent", "--log-dir=logs"]) == 0
    output = capsys.readouterr().out
    assert "note: --profile has no effect on --study=descent\n" in output
    assert "note: --log-dir has no effect on --study=descent\n" in output
    assert run.main([*arguments, "--study=descent,train"]) == 0
    assert "--profile has no effect" not in capsys.readouterr().out
