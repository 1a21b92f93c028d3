"""What `jaxcnn.info` says of this machine, and of kernels that are missing or cannot be used."""

import importlib.metadata
import platform
import subprocess
import sys

import jax
import pytest

import jaxcnn
from jaxcnn import info
from jaxcnn.ops.native import loader


def facts(text: str) -> dict[str, str]:
    """The lines by their names."""
    return dict(line.split(": ", 1) for line in text.splitlines())


@pytest.fixture
def ops_folder(tmp_path, monkeypatch):
    """An empty folder in which libraries are looked for; nothing is registered with JAX."""
    monkeypatch.setattr(loader, "_OPS", tmp_path)
    for name in ("instruction_set", "bfloat16_instructions"):
        monkeypatch.setattr(loader, name, getattr(loader, name).__wrapped__)
    monkeypatch.setattr(loader, "register", lambda library, prefix: None)
    monkeypatch.delenv(loader.ENVIRONMENT_VARIABLE, raising=False)
    return tmp_path


def compile_library(folder, name: str, version: int = 3, sources: str = "", runs: int = 1) -> None:
    """A library that answers the loader, and has no kernels."""
    source = folder / "library.c"
    source.write_text(
        f"int JaxcnnInterface() {{ return {version}; }} int JaxcnnRuns() {{ return {runs}; }}"
        "int JaxcnnBfloat16() { return 2; }"
        f'const char* JaxcnnSources() {{ return "{sources}"; }}'
        f'const char* JaxcnnCompiler() {{ return "compiler of {name}"; }}'
    )
    library = str(folder / f"_kernels_{name}.so")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", library], check=True)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")


def test_versions_system_and_devices():
    lines = facts(info.environment_info())
    assert lines["jaxcnn"] == jaxcnn.__version__
    assert lines["jax"] == jax.__version__
    assert lines["orbax-checkpoint"] == importlib.metadata.version("orbax-checkpoint")
    assert lines["python"].startswith(platform.python_version())
    assert lines["devices"].startswith(f"{jax.device_count()} × ")


def test_missing_libraries(ops_folder):
    lines = facts(info.environment_info())
    assert lines["kernels in use"] == "none: XLA's own operations are used"
    assert lines["instructions for bfloat16"] == "none"
    assert [lines[f"kernels for {name}"] for name in loader.INSTRUCTION_SETS] == ["not built"] * 3


def test_libraries_that_can_and_cannot_be_used(ops_folder):
    compile_library(ops_folder, "avx512", runs=0)
    compile_library(ops_folder, "avx2")
    compile_library(ops_folder, "any")
    lines = facts(info.environment_info())
    assert lines["kernels in use"] == "avx2"
    assert lines["instructions for bfloat16"] == "amx_bf16"
    assert lines["kernels for avx512"] == (
        "this processor lacks the instructions (compiled by compiler of avx512)"
    )
    assert lines["kernels for avx2"] == "in use (compiled by compiler of avx2)"
    assert lines["kernels for any"] == (
        "not used, because there are faster ones (compiled by compiler of any)"
    )


def test_outdated_libraries(ops_folder):
    compile_library(ops_folder, "avx512", version=1003)  # of another major version
    compile_library(ops_folder, "avx2", version=999)  # of a newer minor version
    compile_library(ops_folder, "any", sources="older")
    (ops_folder / "kernels").mkdir()
    with pytest.warns(UserWarning, match="install jaxcnn again"):
        lines = facts(info.environment_info())
    assert lines["kernels in use"].startswith("none")
    assert lines["kernels for avx512"] == "built for another jaxlib"
    assert lines["kernels for avx2"] == "built for another jaxlib"
    assert lines["kernels for any"] == "built from other sources"


def test_a_file_that_is_no_library(ops_folder):
    (ops_folder / "_kernels_any.so").write_text("nothing")
    assert facts(info.environment_info())["kernels for any"].startswith("built for another system")


def test_the_request_of_the_environment(ops_folder, monkeypatch):
    compile_library(ops_folder, "avx2")
    compile_library(ops_folder, "any")
    monkeypatch.setenv(loader.ENVIRONMENT_VARIABLE, "any")
    lines = facts(info.environment_info())
    assert (lines["JAXCNN_KERNELS"], lines["kernels in use"]) == ("any", "any")
    assert lines["kernels for avx2"].startswith("not used, because JAXCNN_KERNELS=any")


def test_an_invalid_request_is_shown_and_is_an_error(ops_folder, monkeypatch, capsys):
    monkeypatch.setenv(loader.ENVIRONMENT_VARIABLE, "avx512")
    assert info.main([]) == 2
    printed = capsys.readouterr()
    reason = "JAXCNN_KERNELS=avx512: these kernels cannot be used: not built"
    assert facts(printed.out)["kernels in use"].startswith(f"none: {reason}")
    assert printed.err.startswith(f"error: {reason}")


def test_the_command():
    command = [sys.executable, "-W", "error", "-m", "jaxcnn.info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert facts(done.stdout)["jax"] == jax.__version__
