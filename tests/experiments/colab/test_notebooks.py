"""The content of the notebooks, and the cell that fetches the code."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))


def sources(path: Path, kind: str = "code") -> list[str]:
    """The text of each cell of a kind."""
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def test_there_are_four_notebooks():
    names = [path.stem for path in NOTEBOOKS]
    assert names == ["custom_images", "first_cnn", "portability_study", "train_step"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_requests_a_tpu(path):
    notebook = json.loads(path.read_text())
    nbformat.validate(notebook)
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code_cells)
    metadata = notebook["metadata"]
    assert metadata["accelerator"] == "TPU"
    assert metadata["colab"] == {"gpuType": "V5E1", "name": path.name, "provenance": []}
    assert notebook["cells"][1]["metadata"]["tags"] == ["parameters"]
    for source in sources(path):
        ast.parse(source)
        assert len(source.splitlines()) < 25, "notebooks are thin: the code is in the packages"
    absolute = r"(?<![\w.:/}*])/(home|root|tmp|work|usr|content|Users|opt|mnt)\b"
    assert not re.search(absolute, path.read_text()) and str(ROOT) not in path.read_text()


def test_all_notebooks_fetch_the_code_in_the_same_way():
    pattern = r'REPOSITORY = "https://github\.com/([^"]+)"'
    (address,) = {re.search(pattern, sources(path)[0])[1] for path in NOTEBOOKS}
    for path in NOTEBOOKS:
        link = f"https://colab.research.google.com/github/{address}/blob/main/colab/{path.name}"
        image = "https://colab.research.google.com/assets/colab-badge.svg"
        assert sources(path, "markdown")[0].startswith(f"[![Open in Colab]({image})]({link})")
    assert len({sources(path)[1] for path in NOTEBOOKS}) == 1


def fetch_code(folder: Path, repository: str) -> subprocess.CompletedProcess:
    """Runs the cell that fetches the code, then imports it, with only the standard library."""
    cell = sources(NOTEBOOKS[0])[1]
    script = (
        f"REPOSITORY = {repository!r}\n{cell}\nfrom experiments import colab\nprint(colab.__file__)"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


def copy_packages(folder: Path) -> Path:
    """Copies the part of the project that the import needs; returns the folder."""
    for name in (
        "experiments/__init__.py",
        "experiments/colab",
        "jaxcnn/__init__.py",
        "jaxcnn/chips.py",
        "jaxcnn/errors.py",
        "jaxcnn/kernel_registration.py",
        "pyproject.toml",
    ):
        source, copy = ROOT / name, folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    return folder


def test_the_code_comes_from_an_uploaded_zip_file_and_needs_no_package(tmp_path):
    packed = copy_packages(tmp_path / "packed" / "jaxcnn").parent
    shutil.make_archive(str(tmp_path / "jaxcnn-main"), "zip", packed)
    unpacked = tmp_path / "jaxcnn-code" / "jaxcnn"
    for _ in range(2):  # a restarted session uses the code that was fetched
        process = fetch_code(tmp_path, "https://github.com/OWNER/jaxcnn")
        assert process.returncode == 0, process.stderr
        package = unpacked / "experiments" / "colab" / "__init__.py"
        assert process.stdout.strip() == str(package)


@pytest.mark.parametrize("repository", ["https://github.com/OWNER/jaxcnn", "file:///nowhere"])
def test_in_a_clone_of_its_own_the_notebook_uses_the_code_one_folder_up(tmp_path, repository):
    clone = copy_packages(tmp_path / "clone")
    for file in ("colab/jaxcnn-code/pyproject.toml", "colab/jaxcnn.zip", ".venv/a/pyproject.toml"):
        (clone / file).parent.mkdir(parents=True, exist_ok=True)
        (clone / file).touch()
    process = fetch_code(clone / "colab", repository)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == str(clone / "experiments" / "colab" / "__init__.py")


def test_the_code_comes_from_a_repository(tmp_path):
    origin = copy_packages(tmp_path / "origin")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=origin, check=True, capture_output=True)
    process = fetch_code(tmp_path, f"file://{origin}")
    package = tmp_path / "jaxcnn-code" / "experiments" / "colab" / "__init__.py"
    assert process.stdout.strip() == str(package), process.stderr


def test_without_an_address_the_message_says_how_to_provide_the_code(tmp_path):
    process = fetch_code(tmp_path, "https://github.com/OWNER/jaxcnn")
    message = process.stderr.splitlines()[-1]
    assert "set REPOSITORY in the first cell, or upload jaxcnn.zip" in message
    assert not (tmp_path / "jaxcnn-code").exists()
