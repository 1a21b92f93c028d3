"""What is built for installation: the libraries' names, the wheel's tag, its files, the headers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
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
    assert {"jaxcnn/ops/_kernels_any.so", "jaxcnn/data/digits.npz"} <= files
    assert {"jaxcnn/ops/kernels/tile.h", "jaxcnn/ops/third_party/xla/ffi/api/ffi.h"} <= files
    licences = {file.rpartition("licenses/")[2] for file in files if "/licenses/" in file}
    assert licences == {
        "LICENSE",
        "jaxcnn/ops/third_party/LICENSE",
        "experiments/report/vendor/LICENSE",
    }


def test_a_wheel_without_a_compiler_has_no_libraries(tmp_path):
    _, files = build_wheel(tmp_path, str(tmp_path / "missing"))
    assert "jaxcnn/info.py" in files
    assert [file for file in files if "_kernels_" in file] == []


COUNTING_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "$COMPILER_VERSION"; exit; fi
echo "$*" >> "$COMPILER_LOG"
for argument; do
    if [ "$previous" = -o ]; then echo "$*" > "$argument"; fi
    previous=$argument
done
"""


@pytest.fixture
def kernel_build(tmp_path):
    """``build(**environment)``: the number of compilations of a build, and its libraries."""
    source, compiler, log = tmp_path / "source", tmp_path / "compiler", tmp_path / "log"
    shutil.copytree(ROOT / "jaxcnn" / "ops", source / "jaxcnn" / "ops")
    for library in (source / "jaxcnn" / "ops").glob("*.so"):
        library.unlink()
    shutil.copy(ROOT / "setup.py", source)
    compiler.write_text(COUNTING_COMPILER)
    compiler.chmod(0o755)

    def build(**environment: str) -> tuple[int, dict[str, str]]:
        log.write_text("")
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={out}"]
        subprocess.run(
            [*command, f"--build-temp={out / 'temporary'}"],
            cwd=source,
            env=os.environ
            | {"CC": str(compiler), "CXX": str(compiler), "COMPILER_LOG": str(log)}
            | {"COMPILER_VERSION": "1.0"}
            | environment,
            capture_output=True,
            check=True,
        )
        libraries = {path.name: path.read_text() for path in out.glob("jaxcnn/ops/*.so")}
        return sum(" -c " in line for line in log.read_text().splitlines()), libraries

    build.source = source
    return build


def test_kernels_are_compiled_again_only_after_a_change(kernel_build):
    first, libraries = kernel_build()
    assert first > 0 and "_kernels_any.so" in libraries
    assert kernel_build() == (0, libraries)
    header = next((kernel_build.source / "jaxcnn" / "ops" / "kernels").glob("*.h"))
    header.write_text(f"{header.read_text()}// changed\n")
    assert kernel_build()[0] == first
    assert kernel_build(CXXFLAGS="-funroll-loops", CFLAGS="-funroll-loops")[0] == first
    assert kernel_build(COMPILER_VERSION="2.0")[0] == first
    assert kernel_build()[0] == 0  # what was compiled for the first compiler is still kept


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
    assert f"jaxlib {oldest}, the oldest" in (headers / "README.md").read_text()
    major, minor = interface_version(headers)
    installed_major, installed_minor = interface_version(Path(jax.ffi.include_dir()))
    assert major == installed_major and minor <= installed_minor
