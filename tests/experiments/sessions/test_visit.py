"""One visit to an accelerator, rehearsed on a CPU: in order, within the time, and again."""

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from experiments import run
from experiments.config.configurations import parse
from experiments.harness import deadline
from experiments.harness.study_cases import collect_cases
from experiments.sessions import agenda, visit
from experiments.sessions.agenda import AGENDA, Item
from experiments.studies import STUDIES
from jaxcnn import backend
from jaxcnn.errors import InputError
from tests.support.records import last_step, read_records

TRAINING = ("--study=train", "--model=logistic", "--dataset=synthetic:2000", "--batch-size=8")
SMALL = (
    Item("descent", ("--study=descent",)),
    Item("no data", (*TRAINING[:2], "--dataset=folder:/nonexistent")),
    Item("training", (*TRAINING, "--epochs=2000", "--save-every=5")),
    Item("never begun", ("--study=kernels",)),
    Item("on the CPU", ("--study=descent",), on_host=True),
)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(agenda, "AGENDA", SMALL)


def arguments(folder, *more: str) -> list[str]:
    return ["--device=cpu:1", "--time-limit-total=1h", f"--results={folder}", *more]


@pytest.fixture
def end_time_when(monkeypatch):
    """Ends the time of a command at an event, as machines differ in what they do in its seconds."""

    def end_when(is_due: Callable[[], bool]) -> None:
        class Timer(threading.Thread):
            def __init__(self, seconds: float, function: Callable[[], None]):
                assert seconds == 3600  # the limit of `arguments`
                super().__init__(daemon=True)
                self._function, self._cancelled = function, threading.Event()

            def run(self) -> None:
                while not self._cancelled.wait(0.02):
                    if is_due():
                        self._function()
                        return

            def cancel(self) -> None:
                self._cancelled.set()

        monkeypatch.setattr(deadline, "Timer", Timer)

    return end_when


@pytest.mark.slow
def test_a_visit_does_what_fits_and_the_next_one_goes_on(small, tmp_path, capsys, end_time_when):
    command = arguments(tmp_path)
    end_time_when(lambda: last_step(tmp_path) > 0)
    assert run.main(command) == 0
    text = capsys.readouterr().out
    assert "left out: " in text and "/nonexistent" in text
    assert "time is up before study train was finished; the same command goes on" in text
    assert "not begun: the same command goes on" in text and "on the CPU" not in text
    assert (tmp_path / "report.html").exists()
    assert len(read_records(tmp_path, "descent")) == 3
    assert not list(tmp_path.glob("train/*.json"))
    step = last_step(tmp_path)
    end_time_when(lambda: last_step(tmp_path) > step)
    assert run.main(command) == 0
    assert "already measured" not in capsys.readouterr().err
    assert len(read_records(tmp_path, "descent")) == 3  # not measured twice
    assert len(list(tmp_path.glob("train/*.checkpoints"))) == 1
    assert step < last_step(tmp_path)


@pytest.mark.slow
def test_the_documented_command_on_a_cpu_measures_the_agenda_from_its_start(
    tmp_path, capsys, end_time_when
):
    command = arguments(tmp_path, "--preset=full", "--epochs=1")
    # Without the parts on the host's CPU, which is the device here.
    items = [item for item in AGENDA if not item.on_host]
    end_time_when(lambda: bool(read_records(tmp_path, "first_cnn")))
    assert run.main(command) == 0
    text = capsys.readouterr().out
    (record,) = read_records(tmp_path, "first_cnn")
    assert record["status"] == "ok" and record["settings"]["epochs"] == 1
    # The time may be over before or after the next item begins.
    not_begun = text.count("not begun: the same command goes on")
    assert len(items) - 2 <= not_begun <= len(items) - 1
    end_time_when(lambda: True)
    assert run.main(command) == 0
    assert capsys.readouterr().out.count("not begun: the same command goes on") >= len(items) - 1
    assert read_records(tmp_path, "first_cnn") == [record]


def test_a_plan_and_json(small, tmp_path, capsys):
    command = arguments(tmp_path, "--dry-run", "--json", "--epochs=1")
    assert run.main(command) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["study"] for case in cases][:4] == ["descent"] * 3 + ["train"]
    # What the command line gives takes precedence over the agenda.
    assert cases[3]["settings"]["epochs"] == 1


@pytest.mark.slow
def test_a_named_study_is_measured_alone_within_the_limit(tmp_path, capsys, end_time_when):
    end_time_when(lambda: last_step(tmp_path) > 0)
    assert run.main(arguments(tmp_path, *TRAINING, "--epochs=2000", "--save-every=5")) == 0
    assert "time is up before study train was finished" in capsys.readouterr().out


ON_HOST = Item("on the CPU", ("--study=parity",), on_host=True)


class Limit:
    """In place of a deadline."""

    is_over = False

    def __init__(self, seconds_left: float):
        self.seconds_left = seconds_left


def test_the_part_on_the_cpu_runs_in_a_process_of_its_own(monkeypatch):
    commands = []

    def run_process(command, environment):
        commands.append(command)
        assert environment["JAX_PLATFORMS"] == "cpu"
        return 0, ""

    monkeypatch.setattr(visit, "_run_process", run_process)
    outcome = visit._run_on_host(ON_HOST, ["--device=gpu", "--preset=full"], Limit(100.0))
    assert outcome.code == 0
    (command,) = commands
    config = parse(command[3:])[0]
    assert (config.device, config.study, config.preset) == ("cpu", "parity", "full")
    assert config.seconds_in_total == 90.0


@pytest.mark.parametrize(
    ("seconds", "answer", "state", "code"),
    [
        (100.0, (0, ""), "done", 0),
        (100.0, (1, "error: no memory"), "failed", 1),
        (100.0, (2, "error: mnist is not prepared"), "left out: mnist is not prepared", 0),
        (10.9, None, "not begun: the same command goes on", 0),
    ],
)
def test_the_state_of_the_part_on_the_cpu(seconds, answer, state, code, monkeypatch):
    printed = []
    gpu = dataclasses.replace(backend.select("cpu:1"), platform="gpu")
    monkeypatch.setattr(backend, "select", lambda device: gpu)
    monkeypatch.setattr(agenda, "AGENDA", (ON_HOST,))
    monkeypatch.setattr(visit, "_run_process", lambda command, environment: answer)
    monkeypatch.setattr("experiments.report.print_rows", lambda *table: printed.append(table[-1]))
    outcome = visit.visit([], parse([])[0], Console(quiet=True), Limit(seconds))
    assert printed == [[("on the CPU", state)]] and outcome.code == code


def test_errors_of_a_process_are_passed_on_and_the_last_one_is_known(capfd):
    program = "import sys; print('out'); sys.stderr.write('first\\nerror: last\\n\\n'); sys.exit(2)"
    assert visit._run_process([sys.executable, "-c", program], os.environ) == (2, "error: last")
    output = capfd.readouterr()
    assert "first" in output.err and "out" in output.err and not output.out


def test_the_default_studies_by_name_are_no_visit():
    limited = ["--time-limit-total=9m"]
    for named in (["--study=train,kernels"], ["--study", "train,kernels"], ["--study=train"]):
        (config,) = parse([*limited, *named])
        assert not run._is_visit([*limited, *named], config)
    assert run._is_visit(limited, parse(limited)[0])
    assert not run._is_visit([], parse([])[0])


def test_bad_limits_are_one_line(tmp_path, capsys):
    assert run.main(arguments(tmp_path, "--time-limit-total=soon")) == 2
    assert "--time-limit-total=soon: expected a duration such as" in capsys.readouterr().err
    assert run.main(["--distributed", "--time-limit-total=9m"]) == 2
    assert "leave --distributed out" in capsys.readouterr().err


@pytest.mark.parametrize("item", AGENDA, ids=lambda item: item.about)
def test_every_item_of_the_agenda_is_possible(item):
    devices = backend.select("cpu:1")
    configs = parse([*item.options, "--device=cpu:1", "--preset=full"])
    for name in configs[0].studies:
        try:
            cases = collect_cases(name, STUDIES[name], configs, devices)
        except InputError as error:
            assert "is not prepared in" in str(error)  # CIFAR-10 or MNIST is not on this machine
        else:
            assert cases.names(devices)
