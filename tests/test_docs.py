"""Every command and every example of the documents is run.

A fence says how: ``sh`` must succeed, ``sh slow`` too but among the slow tests, ``sh gpu`` and ``sh tpu`` succeed or
refuse with exit code 2 where there is no such device, ``sh show`` needs a file or minutes that a test does not have: its options
are checked, nothing is run. Installation is run by ``.ci/run``, to the letter, and left out here.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INSTALLS = ("python3 -m venv", "pip install")
FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[tuple[str, str, str]]:
    """(document, word after the language, text) of each fenced block."""
    found = [
        (path.name, *match.groups())
        for path in DOCUMENTS
        for match in FENCE.finditer(path.read_text())
    ]
    return [(name, word or "", text) for name, kind, word, text in found if kind == language]


def commands() -> list:
    """The commands of each block, which share a folder."""
    cases = []
    for name, word, text in blocks("sh"):
        lines = [command for line in text.strip().splitlines() for command in line.split(" && ")]
        lines = [
            line
            for line in lines
            if not any(part in line for part in (*INSTALLS, "pytest", ".ci/run"))
        ]  # run by .ci/run
        if word != "show" and lines:
            marks = [pytest.mark.slow] if word == "slow" else []
            cases.append(pytest.param(lines, word, id=f"{name}: {lines[0]}", marks=marks))
    return cases


@pytest.mark.parametrize(
    "command",
    [c for _, word, text in blocks("sh") if word == "show" for c in text.strip().splitlines()],
)
def test_commands_that_are_only_shown_have_options_that_exist(command):
    from experiments.cli import parse_options
    from experiments.compare import CompareConfig
    from experiments.config import RunConfig
    from experiments.export import ExportConfig
    from experiments.predict import PredictConfig
    from experiments.preflight.__main__ import PreflightConfig
    from experiments.report.__main__ import ReportConfig

    options = {
        "experiments.run": RunConfig, "experiments.predict": PredictConfig, "experiments.compare": CompareConfig,
        "experiments.export": ExportConfig, "experiments.report": ReportConfig, "experiments.preflight": PreflightConfig,
    }  # fmt: skip
    _, _, module, *arguments = shlex.split(command)
    parse_options(options[module], module, arguments)


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, env=environment, timeout=580
    )


@pytest.mark.parametrize(("lines", "word"), commands())
def test_commands(lines, word, tmp_path, request):
    for command in lines:
        if "../shared" in command:
            request.getfixturevalue("tfds_dir")
            command = command.replace("../shared", str((ROOT / ".." / "shared").resolve()))
        first, *arguments = shlex.split(command)
        assert first in ("python", ".venv/bin/python"), "documents call nothing but Python"
        done = run([sys.executable, *arguments], tmp_path)
        absent = (
            word in ("gpu", "tpu") and done.returncode == 2 and f"no {word} here" in done.stderr
        )
        assert done.returncode == 0 or absent, done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=name) for name, _, text in blocks("python")]
)
def test_examples(text, tmp_path):
    done = run([sys.executable, "-c", text], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_run():
    assert len(commands()) >= 4 and len(blocks("python")) >= 1
