"""Every command and every example of the documents is run.

The word after a fence's language says how: ``sh`` must succeed; ``sh slow`` too, among the slow
tests; ``sh gpu`` and ``sh tpu`` succeed, or exit with code 2 if there is no such device. Of
``sh show``, which needs a file or minutes that a test does not have, only the options are checked.
``sh install`` is another way to install, see `test_installation`.
A ``toml`` block is the file that its first line names, for commands that are shown.
Installation and the README's first command are run by ``.ci/run``, to the letter.
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from experiments.documents import REGION
from tests.support.forked import run_python
from tests.support.paths import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
RUN_BY_CI = ("python3 -m venv", "pip install", "pytest", ".ci/run", ".venv/bin/python")
FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(python -m experiments\.\w+\s[^`]+)`")
LONGEST_LINE = 100
PROGRAMS = {"python": [], "jaxcnn": ["-m", "experiments"]}
QUICK = (
    "--list",
    "--help",
    "--version",
    "--dry-run",
    "experiments.summary",
    "jaxcnn.info",
)  # of a few seconds


def blocks(language: str) -> list[tuple[str, str, str]]:
    """(document, word after the language, text) of each block; continued lines are joined."""
    return [
        (path.name, word or "", text.replace("\\\n", " "))
        for path in DOCUMENTS
        for fence_language, word, text in FENCE.findall(path.read_text())
        if fence_language == language
    ]


def shell_commands(text: str) -> list[str]:
    """The commands of a block, without those that ``.ci/run`` runs."""
    commands = [command for line in text.strip().splitlines() for command in line.split(" && ")]
    return [command for command in commands if not any(part in command for part in RUN_BY_CI)]


def shown_commands() -> list[str]:
    """Commands that are not run: those of ``sh show`` blocks and those inside a sentence."""
    shown = [
        line
        for _, word, text in blocks("sh")
        if word == "show"
        for line in text.strip().splitlines()
    ]
    inline = [" ".join(c.split()) for path in DOCUMENTS for c in INLINE.findall(path.read_text())]
    return list(dict.fromkeys([*shown, *inline]))


def run_cases() -> list:
    """One case per block: its commands share a folder."""
    cases = []
    for name, word, text in blocks("sh"):
        commands = shell_commands(text)
        if word not in ("show", "install") and commands:
            is_quick = all(any(option in c for option in QUICK) for c in commands)
            marks = [] if is_quick and word != "slow" else [pytest.mark.slow]
            cases.append(pytest.param(commands, word, id=f"{name}: {commands[0]}", marks=marks))
    return cases


@pytest.mark.parametrize("command", shown_commands())
def test_commands_that_are_only_shown_have_options_that_exist(command, tmp_path, monkeypatch):
    from experiments.cli import parse_options
    from experiments.compare import CompareConfig, separate
    from experiments.config.configurations import parse
    from experiments.documents import DocumentsConfig
    from experiments.export import ExportConfig
    from experiments.predict import PredictConfig
    from experiments.preflight.options import PreflightOptions
    from experiments.rehearsal.__main__ import RehearsalConfig
    from experiments.report.__main__ import ReportConfig
    from experiments.summary import SummaryConfig

    options = {
        "experiments.predict": PredictConfig,
        "experiments.compare": CompareConfig,
        "experiments.documents": DocumentsConfig,
        "experiments.export": ExportConfig,
        "experiments.rehearsal": RehearsalConfig,
        "experiments.report": ReportConfig,
        "experiments.preflight": PreflightOptions,
        "experiments.summary": SummaryConfig,
    }
    monkeypatch.chdir(tmp_path)
    for _, _, text in blocks("toml"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    _, _, module, *arguments = shlex.split(command)
    if module == "experiments.run":
        parse(arguments)
    else:
        own, separator, of_run = separate(arguments)
        parse_options(options[module], module, own)
        assert not separator or module == "experiments.compare"
        parse(of_run)


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Runs Python as a user does: with programs that are optimized.

    Those for simulated devices, whose speed means nothing, are not.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if not any(argument.startswith("--device=cpu:") for argument in arguments):
        environment["XLA_FLAGS"] = ""
    return run_python(arguments, folder, environment)


@pytest.mark.parametrize(("commands", "word"), run_cases())
def test_commands(commands, word, tmp_path, request):
    for command in commands:
        if "../shared" in command:
            request.getfixturevalue("tfds_dir")
            command = command.replace("../shared", str((ROOT / ".." / "shared").resolve()))
        first, *arguments = shlex.split(command)
        assert first in PROGRAMS, "documents call nothing but Python and the console script"
        done = run([*PROGRAMS[first], *arguments], tmp_path)
        no_device = f"no {word.upper()} is available" in done.stderr and done.returncode == 2
        allowed = done.returncode == 0 or (word in ("gpu", "tpu") and no_device)
        assert allowed, done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=name) for name, _, text in blocks("python")]
)
def test_examples(text, tmp_path):
    done = run(["-c", text], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documents_have_commands_and_examples():
    assert len(run_cases()) >= 4 and len(blocks("python")) >= 1


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_lines_are_short(path):
    lines = REGION.sub("", path.read_text()).splitlines()  # without tables made from records
    assert [line for line in lines if len(line) > LONGEST_LINE] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_point_to_files_and_headings(path):
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", path.read_text())
    broken = []
    for target, anchor in links:
        file = path.parent / target if target else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and MkDocs name them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
