"""The first CNN, here and on the accelerator."""

import dataclasses
import json

import jax
import pytest

from experiments import run
from experiments.analysis import walls
from experiments.config import RunConfig
from experiments.harness.study import CaseResult, Context
from experiments.records import Record
from experiments.studies import STUDIES, first_cnn
from jaxcnn.backend import Backend

DEVICES = tuple(jax.devices("cpu")[:1])
CPU, GPU = Backend("cpu", DEVICES), Backend("gpu", DEVICES)


def of(platform: str, training: float, compiling: float, status: str = "ok", **metrics) -> Record:
    metrics |= {"training_time": training, "compile_time": compiling, "epochs": 5}
    return Record(
        "first_cnn",
        platform,
        status,
        metrics=metrics,
        provenance={"platform": platform, "accelerator": platform.upper()},
    )


def test_walls_are_held_against_the_quickest_processor():
    rows = [of("cpu", 58, 2), of("gpu", 4, 6), of("cpu", 90, 2), of("gpu", 1, 1, "failed")]
    gpu, cpu, slow = walls.walls(rows)
    assert (gpu.seconds, gpu.speed_up, gpu.training_speed_up) == (10, 6, 14.5)
    assert (cpu.speed_up, slow.speed_up) == (1, pytest.approx(60 / 92))
    assert walls.walls([rows[1]])[0].speed_up is None
    assert walls.conclusion(rows[:2]) == [
        "GPU: 5 epochs in 10.0 s, compiling included, 6.0 times as fast as the processor (14.5 without compiling)",
        "CPU: 5 epochs in 60.0 s, compiling included",
    ]


def test_a_machine_with_an_accelerator_has_two_cases_of_one_question():
    there, here = first_cnn.cases(RunConfig(), GPU)
    assert there.settings == here.settings and there.parts != here.parts
    assert (there.config.device, here.config.device) == ("auto", "cpu")
    kept = {
        name: there.settings[name]
        for name in (
            "model",
            "optimizer",
            "normalise",
            "epochs",
            "batch_size",
            "augment",
            "strategy",
        )
    }
    assert kept == {
        "model": "mnist_cnn", "optimizer": "adam", "normalise": "unit", "epochs": 5, "batch_size": 32, "augment": "none", "strategy": "jit",
    }  # fmt: skip
    assert (
        len(first_cnn.cases(RunConfig(), CPU))
        == len(first_cnn.cases(RunConfig(device="gpu"), GPU))
        == 1
    )


def test_in_full_mnist_is_taken_where_it_is(tfds_dir, tmp_path):
    full = RunConfig(preset="full", data_dir=tfds_dir)
    assert first_cnn.with_mnist(full).dataset == "mnist"
    assert first_cnn.with_mnist(full.replace(preset="quick")).dataset == "digits"
    assert first_cnn.with_mnist(full.replace(data_dir=str(tmp_path))).dataset == "digits"
    assert first_cnn.with_mnist(full.replace(dataset="cifar10")).dataset == "cifar10"


def test_the_other_platform_has_a_process_of_its_own(monkeypatch):
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
    failure = CaseResult(status="out_of_memory", message="no more")
    monkeypatch.setattr(first_cnn, "measure_isolated", lambda *_: failure)
    result = first_cnn.measure(case, context)
    assert (result.status, result.message) == ("out_of_memory", "on the cpu: no more")


def test_figures_of_merit_are_only_those_of_the_platform_that_ran_the_case():
    on_gpu, on_cpu = first_cnn.cases(RunConfig(), GPU)
    study = STUDIES["first_cnn"]
    assert study.has_figures_of_merit(on_gpu, GPU) and not study.has_figures_of_merit(on_cpu, GPU)


def test_on_a_processor_alone_it_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        first_cnn.train,
        "measure",
        lambda *_: CaseResult({"training_time": 1.0, "compile_time": 0.5, "epochs": 5}),
    )
    monkeypatch.setattr(run_backend(), "select", lambda device: dataclasses.replace(CPU))
    assert run.main(["--study=first_cnn", f"--results={tmp_path}"]) == 0
    (path,) = (tmp_path / "first_cnn").glob("*.json")
    found = json.loads(path.read_text())
    assert (
        found["provenance"]["platform"] == "cpu"
        and "no accelerator here" in found["provenance"]["remarks"][0]
    )
    printed = capsys.readouterr().out
    assert "no accelerator here" in printed and "5 epochs in 1.5 s" in printed


def run_backend():
    from jaxcnn import backend

    return backend
