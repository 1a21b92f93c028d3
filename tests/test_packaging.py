"""What is built for installation: the libraries' names, the wheel's tag, its files, the headers."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import jax
import pytest

from tests.support.paths import ROOT

FAKE_COMPILER = """#!/bin/sh
for argument; do
    if [ "$previous" = -o ]; then : > "$argument"; fi
    previous=$argument
done
"""


def build_wheel(folder: Path, compiler: str) -> tuple[str, set[str]]:
    """The name of the wheel that pip builds from a copy of the project, and its files."""
    pytest.importorskip("setuptools", minversion="77")
    source = folder / "source"
    unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so", "results", "tests")
    shutil.copytree(ROOT, source, ignore=unwanted)
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), "."]
    environment = os.environ | {"CC": compiler, "CXX": compiler}
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, set(archive.namelist())


def test_a_wheel_contains_the_libraries_and_serves_all_versions_of_python(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(0o755)
    name, files = build_wheel(tmp_path, str(compiler))
    assert re.fullmatch(r"jaxcnn-[\w.]+-py3-none-(linux|macosx)_\w+\.whl", name)
    assert "jaxcnn/ops/_kernels_any.so" in files
    assert {"jaxcnn/ops/kernels/tile.h", "jaxcnn/ops/third_party/xla/ffi/api/ffi.h"} <= files
    licences = {file.rpartition("licenses/")[2] for file in files if "/licenses/" in file}
    assert licences == {"LICENSE", "jaxcnn/ops/third_party/LICENSE"}


def test_a_wheel_without_a_compiler_has_no_libraries(tmp_path):
    _, files = build_wheel(tmp_path, str(tmp_path / "missing"))
    assert "jaxcnn/info.py" in files
    assert [file for file in files if "_kernels_" in file] == []


def interface_version(include: Path) -> tuple[int, int]:
    """The version of XLA's foreign function interface in a folder of headers."""
    text = (include / "xla" / "ffi" / "api" / "c_api.h").read_text()
    major, minor = (
        re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR")
    )
    return int(major), int(minor)


def test_the_headers_are_those_of_the_oldest_jaxlib():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest,) = (need.split(">=")[1] for need in project["dependencies"] if need.startswith("jax>"))
    headers = ROOT / "jaxcnn" / "ops" / "third_party"
    assert f"jaxlib {oldest}.0, the oldest" in (headers / "README.md").read_text()
    major, minor = interface_version(headers)
    installed_major, installed_minor = interface_version(Path(jax.ffi.include_dir()))
    assert major == installed_major and minor <= installed_minor
