"""What the commands of the documents write into the project's folder is ignored by Git."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?:sh|python)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Options that name what is written, virtual environments, and the checkpoints of a program.
OUTPUT = re.compile(
    r"--(?:results|out|output|log-dir)=([\w.-]+)(?=[\s`]|$)"
    r"|-m venv ([\w.-]+)|Checkpoints\(\"([\w.-]+)\""
)
DEFAULTS = {"results", "build", "jaxcnn.egg-info"}


def outputs() -> list[str]:
    """Relative names of what the commands write."""
    texts = [text for path in DOCUMENTS for text in FENCE.findall(path.read_text())]
    archives = re.findall(r"--output=([\w.]+) HEAD", (ROOT / "README.md").read_text())
    names = {name for text in texts for match in OUTPUT.findall(text) for name in match if name}
    return sorted(names | set(archives) | DEFAULTS)


def test_the_outputs_of_the_documents_are_found():
    assert {".venv", ".venv-test", "laptop", "logs", "report.html", "records.csv"} <= {*outputs()}
    assert {"resnet18.safetensors", "jaxcnn.zip", "stripes.checkpoints"} <= {*outputs()}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_ignores_them(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for name in outputs():  # a pattern with a slash at its end is for folders alone
        if Path(name).suffix in ("", ".checkpoints", ".egg-info") or name.startswith("."):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text("")
        else:
            (tmp_path / name).write_text("")
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["??", ".gitignore"]
