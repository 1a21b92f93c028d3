"""The first CNN: cases for the CPU and the accelerator, and the process of the other platform."""

import dataclasses

import jax
import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.harness.study import CaseResult, Context
from experiments.studies import STUDIES, first_cnn
from jaxcnn import backend
from jaxcnn.backend import Backend
from tests.support.records import read_records

DEVICES = tuple(jax.devices("cpu")[:1])
CPU, GPU = Backend("cpu", DEVICES), Backend("gpu", DEVICES)


def test_a_machine_with_an_accelerator_has_two_cases_with_equal_settings():
    on_gpu, on_cpu = first_cnn.cases(RunConfig(), GPU)
    assert on_gpu.settings == on_cpu.settings and on_gpu.parts != on_cpu.parts
    assert (on_gpu.config.device, on_cpu.config.device) == ("auto", "cpu")
    published = {
        "model": "mnist_cnn",
        "optimizer": "adam",
        "normalise": "unit",
        "epochs": 5,
        "batch_size": 32,
        "augment": "none",
        "strategy": "jit",
    }
    assert published.items() <= on_gpu.settings.items()


@pytest.mark.parametrize(
    ("device", "backend"), [("auto", CPU), ("gpu", GPU)], ids=["no accelerator", "one requested"]
)
def test_otherwise_there_is_one_case(device, backend):
    assert len(first_cnn.cases(RunConfig(device=device), backend)) == 1


def test_the_full_preset_uses_mnist_if_it_is_prepared(tfds_dir, tmp_path):
    full = RunConfig(preset="full", data_dir=tfds_dir)
    assert first_cnn.with_mnist(full).dataset == "mnist"
    assert first_cnn.with_mnist(full.replace(preset="quick")).dataset == "digits"
    assert first_cnn.with_mnist(full.replace(data_dir=str(tmp_path))).dataset == "digits"
    assert first_cnn.with_mnist(full.replace(dataset="cifar10")).dataset == "cifar10"


def test_the_other_platform_has_its_own_process(monkeypatch):
    _, case = first_cnn.cases(RunConfig(), GPU)
    context, devices = Context(GPU, None, None), []

    def measure_isolated(case, context):
        devices.append(case.config.device)
        metrics = {"flops_per_step": 1.0, "training_time": 2.0}
        return CaseResult(metrics, provenance={"platform": "cpu"})

    monkeypatch.setattr(first_cnn, "measure_isolated", measure_isolated)
    result = first_cnn.measure(case, context)
    assert devices == ["cpu"] and result.provenance == {"platform": "cpu"}
    assert result.metrics == {"flops_per_step": 1.0, "training_time": 2.0}


def test_a_failure_on_the_other_platform_names_it(monkeypatch):
    _, case = first_cnn.cases(RunConfig(), GPU)
    failure = CaseResult(status="out_of_memory", message="no more")
    monkeypatch.setattr(first_cnn, "measure_isolated", lambda *_: failure)
    result = first_cnn.measure(case, Context(GPU, None, None))
    assert (result.status, result.message) == ("out_of_memory", "on the cpu: no more")


def test_only_the_platform_of_this_process_has_figures_of_merit():
    on_gpu, on_cpu = first_cnn.cases(RunConfig(), GPU)
    study = STUDIES["first_cnn"]
    assert study.has_figures_of_merit(on_gpu, GPU) and not study.has_figures_of_merit(on_cpu, GPU)


def test_without_an_accelerator_the_record_says_how_to_add_one(tmp_path, capsys, monkeypatch):
    result = CaseResult({"training_time": 1.0, "compile_time": 0.5, "epochs": 5})
    monkeypatch.setattr(first_cnn.train, "measure", lambda *_: result)
    monkeypatch.setattr(backend, "select", lambda *_: dataclasses.replace(CPU))
    assert run.main(["--study=first_cnn", f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "first_cnn")
    assert record["provenance"]["platform"] == "cpu"
    assert "no accelerator on this machine" in record["provenance"]["remarks"][0]
    output = capsys.readouterr().out
    assert "no accelerator on this machine" in output and "5 epochs in 1.5 s" in output
