"""The rehearsal of a visit: every program of the agenda is compiled, and none of them runs."""

import dataclasses

import pytest
from etils import epath
from rich.console import Console

from experiments import records
from experiments.config.configurations import parse
from experiments.peers import process
from experiments.preflight.targets import target
from experiments.rehearsal import __main__ as command
from experiments.rehearsal import absent_device
from experiments.rehearsal import rehearse as module
from experiments.sessions.agenda import AGENDA, Item
from experiments.studies import peers, peers_cases, speedrun_cases
from jaxcnn import backend

TRAINING = ("--study=train", "--dataset=synthetic:320", "--batch-size=32", "--epochs=2")
# Steps of a billion FLOPs or more, which are not run.
SMALL = (
    Item("training", (*TRAINING, "--model=cifar_tutorial", "--warmup=0")),
    Item("no data", ("--study=train", "--dataset=folder:/nonexistent")),
    Item("on the CPU", ("--study=descent",), on_host=True),
)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "AGENDA", SMALL)


def call(folder, *more: str) -> int:
    return command.main(["--target=cpu", "--preset=quick", f"--results={folder}", *more])


def test_programs_are_compiled_once_and_recorded(small, tmp_path, capsys):
    select, worker = backend.select, peers.Worker
    assert call(tmp_path) == 0
    first = capsys.readouterr().out
    assert "compiled: run" in first and "left out: " in first and "/nonexistent" in first
    loaded, problems = records.load([tmp_path])
    assert problems == []
    training, no_data = sorted(loaded, key=lambda record: record.case)
    assert training.status == "predicted" and no_data.status == "unsupported"
    programs = training.provenance["programs"]
    # Steps, evaluation and the initial state, at least; and those that measure the peak.
    assert training.metrics["programs_compiled"] == len(programs) >= 4
    assert training.metrics["programs_failed"] == 0
    # The images of the training set and the state are arguments of the largest program.
    largest = max(programs, key=lambda program: program["arguments"][1])
    assert largest["arguments"][1] > 320 * 32 * 32 * 3
    assert {"name", "state", "memory", "seconds"} <= largest.keys()
    assert (backend.select, peers.Worker) == (select, worker)
    assert call(tmp_path) == 0
    second = capsys.readouterr().out
    assert "compiled: " not in second and "left out: " in second


def test_a_program_that_does_not_compile_fails_its_part(small, tmp_path, monkeypatch):
    def refuse(*_):
        raise ValueError("no such kernel on this device")

    monkeypatch.setattr(absent_device._Compiler, "__call__", refuse)
    assert call(tmp_path) == 1
    by_status = {record.status: record.message for record in records.load([tmp_path])[0]}
    assert by_status.keys() == {"failed", "unsupported"}
    assert "no such kernel" in by_status["failed"]


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--target=gpu-h100-8"], "has 8 devices; give a target with one"),
        (["--target=gpu-h1000"], "gpu-h100"),
        (["--preset=fast"], "--preset"),
    ],
)
def test_bad_options_are_one_line(options, problem, tmp_path, capsys):
    assert command.main([*options, f"--results={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert problem in error and "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("item", [item for item in AGENDA if "peers" in item.options[0]][:1])
def test_the_comparison_with_other_libraries_is_rehearsed_in_one_process(
    item, tmp_path, capsys, monkeypatch
):
    shrunk = Item(item.about, (*item.options, "--model=lenet_like", "--batch-size=8"))
    monkeypatch.setattr(module, "AGENDA", (shrunk,))
    assert call(tmp_path) == 0
    (record,) = records.load([tmp_path])[0]
    assert record.metrics["programs_compiled"] >= 3


def test_what_failed_was_left_out_or_had_another_compiler_is_rehearsed_again(
    small, tmp_path, monkeypatch
):
    statuses = iter(["failed", "unsupported", "predicted", "unsupported"] + ["predicted"] * 3)
    rehearsed = []

    def rehearse_item(item, target, preset, console):
        rehearsed.append(item.about)
        settings = {"part": item.about, "target": target.name, "preset": preset}
        provenance = {"compiler": module.libraries.compiler(target)}
        metrics = dict.fromkeys(("compiled", "out_of_memory", "failed"), 0.0)
        return records.Record(
            module.STUDY,
            item.about,
            next(statuses),
            settings=settings,
            metrics={f"programs_{name}": value for name, value in metrics.items()},
            provenance=provenance,
        )

    monkeypatch.setattr(module, "_rehearse_item", rehearse_item)
    assert [call(tmp_path), rehearsed] == [1, ["training", "no data"]]
    assert [call(tmp_path), rehearsed[2:]] == [0, ["training", "no data"]]
    assert [call(tmp_path), rehearsed[4:]] == [0, ["no data"]]
    assert [call(tmp_path), rehearsed[5:]] == [0, []]
    monkeypatch.setattr(module.libraries, "compiler", lambda target: "jaxlib 99")
    module.rehearse(target("cpu"), "quick", epath.Path(tmp_path), Console(quiet=True))
    assert rehearsed[5:] == ["training", "no data"]


def test_the_results_folder_may_be_in_the_home_folder(tmp_path, monkeypatch):
    folders = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        module, "rehearse", lambda target, preset, folder, console: folders.append(folder) or []
    )
    assert command.main(["--target=cpu", "--results=~/rehearsed"]) == 0
    assert folders == [epath.Path(tmp_path / "rehearsed")] and folders[0].is_dir()


def test_other_libraries_are_left_out_though_they_are_installed(monkeypatch):
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("jaxcnn.data.fingerprint", lambda *args, **kwargs: "")
    gpu = dataclasses.replace(backend.select("cpu:1"), platform="gpu")

    def libraries():
        (compared,) = peers_cases.cases(parse(["--study=peers"])[0], gpu)
        runs = speedrun_cases.cases(parse(["--study=speedrun", "--preset=full"])[0], gpu)
        return compared.settings["peers"], [case.settings["library"] for case in runs]

    everything = libraries()
    with module._simulated("gpu"):
        assert libraries() == (["ours"], ["jaxcnn"])
    torch = ["torch channels-last"]  # without the compiled ones, which are of the full study
    assert libraries() == everything == (["ours", *torch], ["jaxcnn", "pytorch"])
