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


@pytest.mark.parametrize(
    ("jax", "libtpu", "words"),
    [
        ("0.10.2", "0.0.42", ""),  # what jax[tpu] pins
        ("0.10.2", "0.0.52", ""),
        ("0.10.2", "0.0.47", "libtpu 0.0.47 was not tested with jax 0.10.2"),
        ("0.11.0", "0.0.52", "libtpu 0.0.52 was not tested with jax 0.11.0"),
    ],
)
def test_a_pair_of_versions_that_was_not_tested_gets_a_remark(monkeypatch, jax, libtpu, words):
    monkeypatch.setattr(libraries, "version", {"jax": jax, "libtpu": libtpu}.get)
    monkeypatch.setattr(
        libraries.importlib.metadata, "requires", lambda name: ['libtpu==0.0.42.*; extra == "tpu"']
    )
    remark = libraries.untested(targets.target("tpu-v5e-1"))
    assert remark.startswith(words) and bool(remark) == bool(words) and "\n" not in remark
    assert libraries.untested(targets.target("gpu-t4")) == ""
