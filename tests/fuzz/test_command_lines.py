"""Bad values of every option of every command: one clear line and exit code 2, or an answer."""

import dataclasses
import itertools
import random
from collections import Counter

import pytest

from experiments import __main__, compare, documents, export, predict, run, summary
from experiments.config.options import RunOptions
from experiments.preflight import __main__ as preflight
from experiments.preflight.options import PreflightOptions
from experiments.rehearsal import __main__ as rehearsal
from experiments.rehearsal import rehearse
from experiments.report import __main__ as report
from tests.support import attacks

VALUES = (
    "",
    " ",
    "-1",
    "0",
    "1.5",
    "1e309",
    "-inf",
    "nan",
    "1" + "0" * 400,
    "99999999999",
    "true",
    "None",
    "[]",
    "{}",
    "é ☃",
    "\x1b[31mred\x1b[0m",
    "a" * 5000,
    "../../..",
    "/dev/null",
    "/proc/self/mem",
    "/proc/nowhere/at/all",  # where not even root can make a folder
    "~nobody-at-all/x",
    "http://example.invalid/x",
    "gs://",
    "file:///etc/passwd",
    "lenet5,",
    ",",
    "1,,2",
    "step:0:0",
    "milestones:2:3",
    "folder:/nowhere",
    "folder:",
    "tfds:../../etc",
    "synthetic:0",
    "synthetic:999999999",
    "mlp:0",
    "mlp:999999999",
    "./nowhere.py:Net",
    "os:system",
    "cpu:0",
    "cpu:99999",
    "=1+1",
    "%s%n",
    "$(id)",
)


def fields(options) -> list[str]:
    """The options of a dataclass, those of its groups included."""
    names = []
    for field in dataclasses.fields(options):
        is_group = dataclasses.is_dataclass(field.type)
        names += fields(field.type) if is_group else [f"--{field.name.replace('_', '-')}"]
    return names


# By command: its entry point, what every call has, and its options.
COMMANDS = {
    "run": (run.main, ["--dry-run", "--results={tmp}/results"], fields(RunOptions)),
    "compare": (compare.main, ["{tmp}/a", "{tmp}/b"], fields(compare.CompareConfig)),
    "export": (export.main, ["{tmp}/a", "--out={tmp}/x.csv"], fields(export.ExportConfig)),
    "report": (report.main, ["--out={tmp}/report.html"], fields(report.ReportConfig)),
    "predict": (predict.main, ["{tmp}/x.png", "--weights={tmp}"], fields(predict.PredictConfig)),
    "summary": (summary.main, [], fields(summary.SummaryConfig)),
    "documents": (documents.main, ["--root={tmp}"], fields(documents.DocumentsConfig)),
    "preflight": (
        preflight.main,
        ["--target=cpu", "--results={tmp}/results"],
        fields(PreflightOptions),
    ),
    "rehearsal": (
        rehearsal.main,
        ["--target=cpu", "--results={tmp}/results"],
        fields(rehearsal.RehearsalConfig),
    ),
}
WITHOUT_OPTIONS = {"info"}
NOT_FUZZED = {
    "--distributed",  # waits for other processes
    "--coordinator",
    "--out",  # in test_outputs
    "--interleave",
}


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    """Neither by the preflight nor by a rehearsal, whose other options are checked before."""
    monkeypatch.setattr(preflight, "_compile_cases", lambda cases, console: [])
    monkeypatch.setattr(rehearse, "rehearse", lambda *_: [])


def test_every_command_is_among_them():
    assert COMMANDS.keys() | WITHOUT_OPTIONS == {*__main__.COMMANDS, "documents"}


def mistakes(options: list[str]) -> list[list[str]]:
    """Command lines that no command accepts."""
    return [
        *([f"{option[:-1]}{end}=1"] for option in options for end in ("", "__", "é")),
        *([option.replace("--", "-")] for option in options),
        ["--no-such-option=1"],
        ["--=1"],
        ["-"],
        ["--"],
        ["---"],
        ["-x"],
        ["--no-such-option", "1"],
        ["--\x1b[31m"],
    ]


def calls() -> list[tuple[str, str, str]]:
    """Every command, option and value, in a random order that is the same each time."""
    every = [
        (command, option, value)
        for command, (_, _, options) in COMMANDS.items()
        for option, value in itertools.product(options, VALUES)
        if option not in NOT_FUZZED
    ]
    random.Random(0).shuffle(every)
    return every[: attacks.number(60, 1500)]


@pytest.mark.filterwarnings("ignore")
def test_bad_values_of_options(tmp_path, capsys, monkeypatch):
    for name in "ab":
        (tmp_path / name / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    outcomes, failures = Counter(), []
    for command, option, value in calls():
        main, common, _ = COMMANDS[command]
        arguments = [part.replace("{tmp}", str(tmp_path)) for part in common]
        arguments.append(f"{option}={value}")
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code
        error = capsys.readouterr().err
        expected = {0, 2, 3} if command == "compare" else {0, 2}
        is_clear = code != 2 or attacks.one_line_error(error)
        outcomes[f"exit code {code}"] += 1
        if code not in expected or not is_clear or attacks.DEFECT in error:
            failures.append((command, option, value[:40], code, error[-300:]))
    attacks.report(capsys, "bad values of options", outcomes)
    assert failures == [], "\n".join(map(str, failures))


def test_unknown_options_and_arguments(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures = []
    for command, (main, _, options) in COMMANDS.items():
        for arguments in mistakes(options):
            if arguments[0].partition("=")[0] in options:
                continue
            code, error = main(arguments), capsys.readouterr().err
            words = ("unknown option", "unexpected argument", "must be given", "give ")
            is_named = any(word in error for word in words) and "tyro" not in error
            if code != 2 or not attacks.one_line_error(error) or not is_named:
                failures.append((command, arguments, code, error[-300:]))
    assert failures == [], "\n".join(map(str, failures))
