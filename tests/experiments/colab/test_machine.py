"""Detecting the accelerator, and installing what it needs."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import colab
from experiments.colab import machine
from jaxcnn.errors import InputError
from tests.support.paths import ROOT

GOOGLE, INTEL = "0x1ae0", "0x8086"


def add_pci_device(root: Path, vendor: str, device: str) -> None:
    folder = root / "sys/bus/pci/devices/0000:00:05.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")


def add_nvidia_smi(folder: Path, monkeypatch, output: str, exit_code: int = 0) -> None:
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{output}'\nexit {exit_code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("device", "platform"),
    [("0x0063", "tpu"), ("0x006f", "tpu"), ("0x001f", "cpu"), ("0x0042", "cpu")],
)
def test_googles_disks_and_network_cards_are_no_tpus(device, platform, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_query_nvidia", lambda: None)
    add_pci_device(tmp_path, GOOGLE, device)
    assert machine.detect_platform(tmp_path) == platform


def test_only_googles_chip_of_that_number_or_a_device_file_is_a_tpu(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_query_nvidia", lambda: None)
    add_pci_device(tmp_path, INTEL, "0x0063")
    assert machine.detect_platform(tmp_path) == "cpu"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    assert machine.detect_platform(tmp_path) == "tpu"


@pytest.mark.parametrize(
    ("output", "installed", "extra"),
    [
        ("580.65.06, 9.0", None, "cuda13"),
        ("580.65.06, 7.0", None, "cuda12"),  # Volta
        ("550.54.15, 7.5", None, "cuda12"),  # a driver older than CUDA 13
        ("580.65.06, 9.0", "0.7.2", "cuda12"),
    ],
)
def test_the_extra_depends_on_driver_gpu_and_installed_plugin(
    output, installed, extra, tmp_path, monkeypatch
):
    add_nvidia_smi(tmp_path / "bin", monkeypatch, output)
    monkeypatch.setattr(machine, "version", {"jax-cuda12-plugin": installed}.get)
    assert machine.detect_platform(tmp_path) == "gpu"
    assert machine._cuda_extra() == extra


def test_a_driver_without_a_gpu_is_a_cpu(tmp_path, monkeypatch):
    add_nvidia_smi(tmp_path / "bin", monkeypatch, "No devices were found", exit_code=6)
    assert machine.detect_platform(tmp_path) == "cpu"


@pytest.mark.parametrize(
    ("requested", "available"), [("tpu", "cpu"), ("tpu", "gpu"), ("gpu", "cpu"), ("gpu", "tpu")]
)
def test_a_missing_device_is_refused_with_two_ways_out(requested, available, monkeypatch):
    monkeypatch.setattr(machine, "detect_platform", lambda: available)
    with pytest.raises(colab.Stopped) as stop:
        colab.require_device(requested)
    message = str(stop.value)
    assert message.startswith(
        f"a {requested.upper()} was requested, and this machine has only a {available.upper()}: "
        "run this on"
    )
    assert "Runtime → Change runtime type" in message and "\n" not in message
    assert f"set DEVICE = {available!r}" in message


@pytest.mark.parametrize(
    ("requested", "available", "device"),
    [
        ("auto", "tpu", "tpu"),
        ("auto", "cpu", "cpu"),
        ("cpu", "tpu", "cpu"),
        ("cpu:8", "cpu", "cpu:8"),
        ("gpu:2", "gpu", "gpu:2"),
    ],
)
def test_an_available_device_is_used(requested, available, device, monkeypatch):
    monkeypatch.setattr(machine, "detect_platform", lambda: available)
    assert colab.require_device(requested) == device


def test_an_unknown_device_gets_the_closest_name():
    with pytest.raises(InputError, match="unknown device 'tpus': did you mean 'tpu'"):
        colab.require_device("tpus")


def test_on_colab_auto_is_the_runtime_type_that_was_chosen(fake_colab, monkeypatch):
    from google.colab import _message

    monkeypatch.setattr(machine, "detect_platform", lambda: "cpu")
    assert colab.require_device("auto") == "cpu"
    _message.metadata["accelerator"] = "TPU"
    message = "a TPU was requested, and this machine has only a CPU: choose Runtime → Change"
    with pytest.raises(colab.Stopped, match=message):
        colab.require_device("auto")
    assert colab.require_device("cpu") == "cpu"
    _message.metadata["accelerator"] = "NPU"
    assert colab.require_device("auto") == "cpu"
    monkeypatch.delattr(_message, "blocking_request")
    assert colab.require_device("auto") == "cpu"


def test_nothing_is_installed_twice(monkeypatch):
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    colab.install("cpu:8")
    monkeypatch.setattr(machine, "version", {"jaxcnn": "1", "libtpu": "1"}.get)
    colab.install("tpu")


@pytest.mark.parametrize(("device", "suffix"), [("cpu", ""), ("tpu", "[tpu]"), ("gpu", "[cuda13]")])
def test_pip_installs_the_extra_and_its_error_is_passed_on(device, suffix, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, stdout="ERROR: no room on the disk\n")

    monkeypatch.setattr(machine, "version", lambda package: None)
    monkeypatch.setattr(machine, "_query_nvidia", lambda: (580, 9.0))
    monkeypatch.setattr(machine.subprocess, "run", run)
    with pytest.raises(colab.Stopped, match="no room on the disk"):
        colab.install(device)
    assert commands == [[sys.executable, "-m", "pip", "install", "-q", "-e", f"{ROOT}{suffix}"]]


def test_a_package_that_was_loaded_before_its_update_needs_a_restart(monkeypatch):
    installed = {"numpy": "99.0"}

    def run(command, **_):
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(machine, "version", lambda package: installed.get(package))
    monkeypatch.setattr(machine.subprocess, "run", run)
    for name in ("jax", "PIL"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    message = "has loaded an older numpy: choose Runtime → Restart session"
    with pytest.raises(colab.Stopped, match=message):
        colab.install("cpu")
    installed["numpy"] = importlib.metadata.version("numpy")
    colab.install("cpu")


def test_without_the_sources_the_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "version", {"jaxcnn": "1"}.get)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    message = "without what a TPU needs: install it with its extra 'tpu'"
    with pytest.raises(colab.Stopped, match=message):
        colab.install("tpu")
