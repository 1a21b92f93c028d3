"""Other ways to install: the Dockerfile, the lines for uv, the workflow for pull requests."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()


def dockerfile() -> list[tuple[str, str]]:
    """Instructions and their arguments; continued lines are joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]


def copied() -> list[str]:
    """What the build stage copies from the project."""
    arguments = [words.split() for name, words in dockerfile() if name == "COPY"]
    return [source for words in arguments if "--from=build" not in words for source in words[:-1]]


def test_the_container_runs_the_readmes_command_without_privileges():
    names = [name for name, _ in dockerfile()]
    values = dict(dockerfile())  # the last of each
    images = [words.split()[0] for name, words in dockerfile() if name == "FROM"]
    assert images == ["python:3.11-slim"] * 2
    assert PROJECT["requires-python"] == ">=3.11"
    command = json.loads(values["ENTRYPOINT"]) + json.loads(values["CMD"])
    first = re.search(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[1]
    assert first.strip().endswith(f"/bin/{' '.join(command)}")
    last_stage = len(names) - 1 - names[::-1].index("FROM")
    assert "g++" not in str(dockerfile()[last_stage:]) and values["USER"] == "jaxcnn"
    assert names.index("USER") > names.index("FROM", 1)
    (created,) = re.findall(r"useradd --create-home (\w+)", str(dockerfile()))
    assert created == values["USER"] and values["WORKDIR"] == f"/home/{created}"
    assert values["VOLUME"] == f"/home/{created}/results" and values["VOLUME"] in README


def test_what_the_container_copies_exists_and_is_not_ignored():
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert kept[0] == "*"
    for name in copied():
        assert (ROOT / name).exists() and f"!{name}" in kept


@pytest.mark.slow
def test_the_project_is_built_from_what_the_container_copies(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in copied():
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    # Compiled kernels, each under the digest of all that it depends on: of other sources is none.
    if (kept := ROOT / "build" / "kernels").is_dir():
        shutil.copytree(kept, source / "build" / "kernels")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-q"]
    subprocess.run([*command, "--no-index", "-w", str(tmp_path), "."], cwd=source, check=True)
    (wheel,) = tmp_path.glob("jaxcnn-*.whl")
    built = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    installed = {path.name for path in (ROOT / "jaxcnn" / "ops").glob("_kernels_*.so")}
    assert built == installed  # a library that cannot be compiled is left out without an error


def test_the_lines_for_uv_are_those_for_pip():
    block = next(b for b in re.findall(r"^```sh install\n(.*?)^```$", README, re.S | re.M))
    create, install, run = block.strip().split(" && ")
    assert shlex.split(create) == ["uv", "venv"]
    assert shlex.split(install) == ["uv", "pip", "install", "-e", "."]
    assert f"&& {run}" in re.search(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[1]


def test_the_extras_that_documents_name_exist():
    texts = [path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    names = {
        name for text in texts for name in re.findall(r"install (?:-q )?-e '\.\[([\w,]+)\]'", text)
    }
    assert {"docs", "test"} <= names <= set(PROJECT["optional-dependencies"])


def test_urls_are_placeholders_of_a_reserved_domain():
    assert {url.split("/")[2] for url in PROJECT["urls"].values()} == {"example.org"}


def workflow() -> dict:
    page = (ROOT / "docs" / "compare-in-ci.md").read_text()
    return yaml.safe_load(re.search(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1])


def test_the_workflow_calls_compare_as_it_is():
    from experiments.analysis.judged_times import MIN_RUNS
    from experiments.cli import parse_options
    from experiments.compare import CompareConfig, separate
    from experiments.config.configurations import parse

    (job,) = workflow()["jobs"].values()
    install, compare = [step["run"] for step in job["steps"] if "run" in step]
    assert install == "python -m pip install -e ."
    command, summary = compare.split(" >> ")
    python, flag, module, *arguments = shlex.split(command)
    assert (python, flag, module) == ("python", "-m", "experiments.compare")
    assert summary == '"$GITHUB_STEP_SUMMARY"'
    own, separated, options = separate(arguments)
    config = parse_options(CompareConfig, module, own)
    assert separated and config.interleave and config.markdown and config.rounds >= MIN_RUNS
    assert (config.baseline, config.candidate) == ("origin/$GITHUB_BASE_REF", "HEAD")
    (parsed,) = parse(options)
    assert parsed.study == "train"
    artifact = job["steps"][-1]["with"]
    assert artifact["path"] == config.results and job["steps"][0]["with"]["fetch-depth"] == 0
