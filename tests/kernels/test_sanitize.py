"""The kernels' C++ without XLA: under sanitizers, and on an emulated Arm processor."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

KERNELS = ROOT / "jaxcnn" / "ops" / "kernels"
COMPILER = os.environ.get("CXX", "c++")
TOOLS = {"arm": ("aarch64-linux-gnu-g++", "qemu-aarch64")}  # of a variant, beside the compiler


def run_sanitize(*arguments: str, kernels: Path = KERNELS) -> subprocess.CompletedProcess:
    command = ["bash", str(ROOT / ".ci" / "sanitize"), *arguments]
    environment = os.environ | {"KERNELS": str(kernels)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def require_variant(variant: str, folder: Path) -> None:
    """Skips the test on a machine without the tools of a variant of the script."""
    missing = [tool for tool in TOOLS.get(variant, (COMPILER,)) if not shutil.which(tool)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if variant in TOOLS:
        return
    source = folder / "empty.cc"
    source.write_text("int main() {}")
    program = [COMPILER, f"-fsanitize={variant}", str(source), "-o", str(folder / "empty")]
    for command in (program, [str(folder / "empty")]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{COMPILER} has no sanitizer {variant!r} on this machine")


@pytest.mark.parametrize("variant", ["address", "thread", "arm"])
def test_kernels_with_random_shapes(variant, tmp_path):
    require_variant(variant, tmp_path)
    done = run_sanitize("100", variant)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 shapes, vectors of 4 floats, 0 wrong" in done.stdout


@pytest.mark.parametrize(
    ("variant", "file", "line", "planted", "report"),
    [
        (
            "address",
            "gradient.h",
            "is_inside = panels_.width == g_.outputs",
            "is_inside = true",
            "ERROR: AddressSanitizer",
        ),
        (
            "thread",
            "gradient.h",
            "float* const sums = all_sums + share * share_size;",
            "float* const sums = all_sums;",
            "data race",
        ),
        (
            "address",
            "geometry.h",
            "column >= 0 && column < width",
            "column >= 0 && column + 1 < width",
            "WRONG Winograd",
        ),
    ],
    ids=["read behind an array", "data race", "wrong result"],
)
def test_planted_errors_are_noticed(variant, file, line, planted, report, tmp_path):
    require_variant(variant, tmp_path)
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    source = (kernels / file).read_text()
    assert line in source
    (kernels / file).write_text(source.replace(line, planted))
    done = run_sanitize("200", variant, kernels=kernels)
    assert done.returncode not in (0, 2) and report in done.stdout + done.stderr


def test_an_unknown_variant_is_refused():
    done = run_sanitize("10", "memory")
    assert done.returncode == 2
    assert done.stderr == "error: unknown variant 'memory'; use address, thread or arm\n"
