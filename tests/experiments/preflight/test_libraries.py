"""Which compilers are installed, and what to install for the others."""

import pytest

from experiments.preflight import libraries, targets


@pytest.mark.parametrize(
    ("name", "installed", "message"),
    [
        ("tpu-v5e-1", {}, "no TPU compiler is installed (libtpu): pip install -e '.[preflight]'"),
        ("tpu-v5e-1", {"libtpu": "1"}, ""),
        ("gpu-t4", {}, "no GPU compiler is installed: pip install -e '.[cuda13]' (4 GB"),
        (
            "gpu-v100",
            {"jax-cuda13-plugin": "1"},
            "CUDA 12 is the newest that compiles for compute capability 7.0",
        ),
        ("gpu-v100", {"jax-cuda12-plugin": "1"}, ""),
        ("gpu-t4", {"jax-cuda12-plugin": "1"}, ""),
    ],
)
def test_a_missing_compiler_is_named_with_its_extra(monkeypatch, name, installed, message):
    monkeypatch.setattr(libraries, "version", installed.get)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Linux")
    missing = libraries.missing(targets.target(name))
    assert missing.startswith(message) and bool(missing) == bool(message)


def test_other_systems_have_no_compilers(monkeypatch):
    monkeypatch.setattr(libraries, "version", lambda package: None)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Darwin")
    missing = libraries.missing(targets.target("tpu-v5e-1"))
    assert "only for Linux, and this is Darwin" in missing
