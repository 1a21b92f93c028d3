"""Two versions in turn: their order, their environments, and what becomes of failures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from experiments import compare, records
from experiments.analysis.pairs import pairs
from experiments.analysis.regressions import status_outcome
from experiments.harness import interleaved_runs
from experiments.harness.interleaved_runs import Version, prepare, run_round
from experiments.records import Record
from jaxcnn.errors import InputError


def write_record(command: list[str], seconds: float) -> None:
    """Writes the record of a run into the folder of its ``--results``."""
    (results,) = (a.partition("=")[2] for a in command if a.startswith("--results="))
    record = Record(
        "train",
        "lenet5-0a",
        "ok",
        settings={"model": "lenet5"},
        metrics={"step_time": seconds},
        samples={"step_time": [seconds] * 7},
        provenance={"machine": "1a"},
    )
    records.write(record, epath.Path(results))


class FakeRuns:
    """Records instead of runs: the candidate takes `slowdown` times as long, within 5 %."""

    def __init__(self, slowdown: float = 1.0, code: int = 0, message: str = ""):
        self.slowdown, self.code, self.message = slowdown, code, message
        self.rng, self.order = np.random.default_rng(0), []

    def __call__(self, command, environment):
        name = Path(command[0]).name
        self.order.append(name)
        if not self.code:
            factor = self.slowdown if name == "candidate" else 1.0
            write_record(command, factor * 0.01 * np.exp(0.05 * self.rng.standard_normal()))
        return self.code, self.message


@pytest.fixture
def versions(tmp_path) -> list[str]:
    """Two interpreters, which are never run."""
    names = [tmp_path / "baseline", tmp_path / "candidate"]
    for name in names:
        name.touch(mode=0o755)
    return list(map(str, names))


def run_compare(monkeypatch, fake: FakeRuns, *arguments: str) -> int:
    def round_of_fakes(*rest):
        run_round(*rest, launch=fake)

    monkeypatch.setattr(interleaved_runs, "run_round", round_of_fakes)
    return compare.main(list(arguments))


def test_every_other_round_begins_with_the_candidate(tmp_path):
    fake = FakeRuns()
    sides = [Version(name, f"/bin/{name}") for name in ("baseline", "candidate")]
    folders = [tmp_path / "a", tmp_path / "b"]
    for number in range(3):
        run_round(sides, number, ["--study=train"], folders, fake)
    assert fake.order == ["baseline", "candidate", "candidate", "baseline", "baseline", "candidate"]
    assert sorted(path.name for path in folders[0].iterdir()) == [
        "round-001",
        "round-002",
        "round-003",
    ]


def test_the_default_number_of_rounds_detects_ten_percent(monkeypatch, versions, capsys):
    arguments = ["--interleave", *versions, "--json", "--", "--study=train"]
    assert run_compare(monkeypatch, FakeRuns(1.15), *arguments) == 3
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["worse"] == 1
    (note,) = document["problems"]
    assert note.startswith("7 rounds, in which the runs of a typical case differ by")
    assert "if runs differ by 5%, 7 rounds detect a slowdown by 10% of one of 1 times" in output.err
    assert run_compare(monkeypatch, FakeRuns(1.0), *arguments) == 0


def test_few_rounds_are_never_worse_and_are_kept(monkeypatch, versions, capsys, tmp_path):
    results = tmp_path / "kept"
    arguments = ["--interleave", *versions, "--rounds=2", f"--results={results}", "--"]
    assert run_compare(monkeypatch, FakeRuns(2.0), *arguments) == 0
    assert "times are judged from 5 rounds on" in capsys.readouterr().out
    assert len(list(results.rglob("round-*/*/*.json"))) == 4


def test_kept_rounds_of_other_versions_or_options_are_refused(
    monkeypatch, versions, capsys, tmp_path
):
    baseline, candidate = versions
    other = tmp_path / "other"
    other.touch(mode=0o755)
    kept = ["--rounds=2", f"--results={tmp_path / 'kept'}"]
    study = ["--", "--study=train"]

    def run(fake, *arguments):
        return run_compare(monkeypatch, fake, "--interleave", *arguments), capsys.readouterr().err

    # Refused options leave no records, and no versions that later ones are compared with.
    refused = FakeRuns(code=2, message="error: unknown study 'trian'")
    assert run(refused, baseline, candidate, *kept, "--", "--study=trian")[0] == 2
    assert run(FakeRuns(), baseline, candidate, *kept, *study)[0] == 0
    assert run(FakeRuns(), baseline, candidate, *kept, *study)[0] == 0

    code, message = run(FakeRuns(), baseline, str(other), *kept, *study)
    assert code == 2 and f"has rounds of candidate '{candidate}', not '{other}'" in message
    code, message = run(FakeRuns(), baseline, candidate, *kept, *study, "--seed=1")
    assert code == 2
    assert "has rounds of options '--study=train', not '--study=train --seed=1'" in message
    (tmp_path / "kept" / "versions.json").unlink()
    code, message = run(FakeRuns(), baseline, candidate, *kept, *study)
    assert code == 2 and "of an unknown comparison" in message


def test_only_the_rounds_that_were_asked_for_count(monkeypatch, versions, tmp_path):
    arguments = ["--interleave", *versions, f"--results={tmp_path / 'kept'}"]
    load, loaded = compare._load, []

    def loading(config, before, after):
        loaded.append([[Path(folder).name for folder in side] for side in (before, after)])
        return load(config, before, after)

    monkeypatch.setattr(compare, "_load", loading)
    for rounds in (3, 2):
        run_compare(monkeypatch, FakeRuns(), *arguments, f"--rounds={rounds}", "--")
    names = ["round-001", "round-002", "round-003"]
    assert loaded == [[names[:count]] * 2 for count in (1, 2, 3, 1, 2)]


def test_where_no_times_are_compared_one_round_is_enough(monkeypatch, versions, capsys):
    """The only case fails in the candidate."""

    class FailingCandidate(FakeRuns):
        def __call__(self, command, environment):
            code, message = super().__call__(command, environment)
            if Path(command[0]).name == "candidate":
                (results,) = (a.partition("=")[2] for a in command if a.startswith("--results="))
                (file,) = Path(results).rglob("*.json")
                file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "failed"}))
            return code, message

    arguments = ["--interleave", *versions, "--", "--study=train"]
    assert run_compare(monkeypatch, FailingCandidate(), *arguments) == 3
    assert "round 1 of 1" in capsys.readouterr().err


class FlakyCandidate(FakeRuns):
    """The candidate's first runs fail, or leave nothing of a second case of the baseline."""

    def __init__(self, failures: int, *, leaves_a_record: bool):
        super().__init__()
        self.failures, self.leaves_a_record = failures, leaves_a_record

    def __call__(self, command, environment):
        code, message = super().__call__(command, environment)
        name = Path(command[0]).name
        fails = name == "candidate" and self.order.count(name) <= self.failures
        (results,) = (a.partition("=")[2] for a in command if a.startswith("--results="))
        (file,) = Path(results).rglob("*.json")
        record = json.loads(file.read_text())
        second = record | {"case": "mlp-0a", "settings": {"model": "mlp"}}
        if fails and self.leaves_a_record:
            second |= {"status": "failed", "message": "out of luck"}
        if not fails or self.leaves_a_record:
            file.with_name("mlp-0a.json").write_text(json.dumps(second))
        return code, message


@pytest.mark.parametrize(
    ("failures", "leaves_a_record", "line"),
    [
        (6, True, "| status | ok | ok in 1 of 7 runs |"),
        (7, True, "| status | ok | failed |"),
        (1, False, "| status | ok | ok in 6 of 7 runs |"),
        (7, False, "which is worse: train/mlp-0a"),
    ],
)
def test_runs_of_the_candidate_that_fail_or_crash_make_it_worse(
    failures, leaves_a_record, line, monkeypatch, versions, capsys
):
    """Whatever the newest run of the candidate did."""
    fake = FlakyCandidate(failures, leaves_a_record=leaves_a_record)
    options = ["--interleave", *versions, "--rounds=7", "--markdown", "--", "--study=train"]
    assert run_compare(monkeypatch, fake, *options) == 3
    output = capsys.readouterr().out
    assert line in output and "1 worse" in output


def test_a_baseline_that_fails_too_does_not_make_the_candidate_worse():
    runs = [Record("train", "a", status) for status in ("failed", "ok")]
    (pair,), _, _ = pairs(runs, runs, paired=True)
    assert pair.failures == (1, 1) and status_outcome(pair) == ""


def test_a_tolerance_that_no_number_of_rounds_meets_is_bad_input(monkeypatch, versions, capsys):
    arguments = ["--interleave", *versions, "--tolerance=0.099", "--", "--study=train"]
    assert run_compare(monkeypatch, FakeRuns(), *arguments) == 2
    assert "--tolerance=0.099: no number of rounds" in capsys.readouterr().err


def test_a_file_that_is_no_program_is_no_interpreter(tmp_path):
    (tmp_path / "README.md").write_text("# Text\n")
    with pytest.raises(InputError, match="neither a Python interpreter"):
        prepare(str(tmp_path / "README.md"), tmp_path / "installed")


def test_refused_options_are_bad_input(monkeypatch, versions, capsys):
    fake = FakeRuns(code=2, message="error: unknown study 'trian'\n")
    assert run_compare(monkeypatch, fake, "--interleave", *versions, "--", "--study=trian") == 2
    assert "exit code 2: unknown study 'trian'" in capsys.readouterr().err


def test_interpreters_and_environments_are_used_as_they_are(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    interpreter = tmp_path / "env" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.touch(mode=0o755)
    for name in (interpreter, tmp_path / "env"):
        version = prepare(str(name), tmp_path / "installed")
        assert version.python == str(interpreter)
        assert "PYTHONPATH" not in version.environment
        assert version.environment["PYTHONSAFEPATH"] == "1"


def test_checkouts_and_revisions_are_installed(tmp_path, monkeypatch):
    commands = []

    def launch(command, environment):
        commands.append(list(command))
        return 0, ""

    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    version = prepare(str(checkout), tmp_path / "one", launch)
    assert version.environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "one")
    monkeypatch.chdir(checkout)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    prepare("HEAD", tmp_path / "two", launch)
    assert [command[-1].partition("@")[0] for command in commands] == [
        str(checkout),
        f"git+{checkout.as_uri()}",
    ]
    with pytest.raises(InputError, match="v9: neither a Python interpreter"):
        prepare("v9", tmp_path / "three", launch)


def test_a_version_that_pip_cannot_install(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(InputError, match="pip cannot install it: no compiler"):
        prepare(str(tmp_path), tmp_path / "installed", lambda *_: (1, "log\nno compiler\n"))


@pytest.mark.slow
def test_one_environment_against_itself(capfd):
    """Two rounds of a real study; the exit code is 0, as they are too few to judge."""
    options = ["--study=dispatch", "--device=cpu:1", "--model=logistic", "--dataset=synthetic:200"]
    arguments = ["--interleave", sys.executable, sys.executable, "--rounds=2", "--json", "--"]
    assert compare.main([*arguments, *options, "--batch-size=20", "--epochs=2"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["cases"][0]["study"] == "dispatch" and not document["only_before"]
