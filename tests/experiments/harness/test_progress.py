"""Progress bars on a terminal, and plain lines elsewhere."""

import io
import os
import re
import select

import pytest
from rich.console import Console

from experiments.harness.progress import CombinedWatcher, StudyProgress, TrainingProgress
from experiments.records import Record
from jaxcnn.training import FitConfig

EPOCH = {
    "epoch": 1,
    "stage": 1,
    "train_loss": 0.5,
    "validation_loss": 0.25,
    "validation_accuracy": 0.75,
    "seconds": 2.0,
}


@pytest.fixture
def terminal(monkeypatch):
    """A console on a pseudo-terminal of 80 columns, and a function that reads its output."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    reading, writing = os.openpty()

    def read_output() -> str:
        pieces = []
        while select.select([reading], [], [], 0)[0]:
            pieces.append(os.read(reading, 4096))
        return b"".join(pieces).decode()

    with os.fdopen(writing, "w") as file:
        yield Console(file=file, width=80), read_output
    os.close(reading)


def plain_lines(output: str) -> list[str]:
    """The lines of an output, without control sequences."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output))


def test_the_training_bar_shows_steps_time_left_loss_and_speed(terminal):
    console, read_output = terminal
    with TrainingProgress(console, FitConfig(2, 600), 32, step=100) as progress:
        assert any(
            line.startswith("compiling") and "100/1200 steps -:--:--" in line
            for line in plain_lines(read_output())
        )
        progress.on_dispatch(110, 0.5, 10, 0.1)
        progress.on_dispatch(120, 0.25, 10, 0.1)
        progress._bar.refresh()
        lines = plain_lines(read_output())
    (line,) = {line for line in lines if "0.2500" in line}
    assert line.startswith("training ━") and len(line.rstrip()) <= 80
    # 10 steps of 32 images in 0.1 s
    assert re.search(r" 120/1200 steps \d+:\d\d:\d\d loss 0\.2500, 3,200 images/s", line)


def test_an_epoch_prints_a_line_and_the_bar_is_erased(terminal):
    console, read_output = terminal
    with TrainingProgress(console, FitConfig(2, 600), 32) as progress:
        progress.on_dispatch(600, 0.5, 10, 0.1)
        progress.on_epoch(EPOCH, True)
    output = read_output()
    assert (
        "epoch   1/2  loss 0.5000  validation loss 0.2500  accuracy 0.7500  2.0 s  best"
        in plain_lines(output)
    )
    assert output.endswith("\x1b[1A\x1b[2K"), (
        "the cursor goes up to the line of the bar and erases it"
    )


def test_the_loss_of_a_diverging_training_is_short():
    file = io.StringIO()
    with TrainingProgress(Console(file=file, width=120), FitConfig(2, 600), 32) as progress:
        progress.on_epoch(EPOCH | {"train_loss": 1.86e31}, False)
    assert "loss 1.86e+31  validation loss 0.2500  accuracy" in file.getvalue()


def test_without_a_terminal_there_are_plain_lines_and_no_bar():
    file = io.StringIO()
    console = Console(file=file, width=120)
    with (
        StudyProgress(console, "train") as cases,
        TrainingProgress(console, FitConfig(2, 600), 32) as progress,
    ):
        cases.begin("a", 2, [])
        progress.on_dispatch(600, 0.5, 10, 0.1)
        progress.on_epoch(EPOCH, False)
    assert (
        file.getvalue()
        == "epoch   1/2  loss 0.5000  validation loss 0.2500  accuracy 0.7500  2.0 s\n"
    )


def test_the_bars_of_a_study_and_of_a_training_run_are_drawn_together(terminal):
    console, read_output = terminal
    done = [
        Record("s", "a", "ok", provenance={"case_seconds": seconds}) for seconds in (300.0, 900.0)
    ]
    name = "a_long_name_" * 8
    with StudyProgress(console, "search") as cases:
        cases.begin(name, 3, done)
        with TrainingProgress(console, FitConfig(2, 600), 32) as progress:
            read_output()
            progress.on_dispatch(30, 0.5, 10, 0.1)
            progress._bar.refresh()
            frame = plain_lines(read_output())
    outer = next(line for line in frame if line.startswith("search"))
    # three cases of 600 s on average, counting down
    assert (
        re.search(r"━ 2/5 cases 0:(30:00|29:\d\d) a_long_name_.*…", outer)
        and len(outer.rstrip()) <= 80
    )
    assert frame[frame.index(outer) + 1].startswith(("training ━", "training ╸"))


def test_the_first_case_shows_no_time_left_and_a_single_case_no_bar(terminal):
    console, read_output = terminal
    with StudyProgress(console, "search") as cases:
        cases.begin("a", 3, [])
        assert any("0/3 cases -:--:-- a" in line for line in plain_lines(read_output()))
    with StudyProgress(console, "search", shown=False) as cases:
        cases.begin("a", 1, [])
        console.print("all")
        assert plain_lines(read_output())[-2:] == ["all", ""]


def test_without_a_terminal_a_case_that_has_ended_is_a_line():
    columns = ("members", "step_time", "test_accuracy")
    record = Record(
        "at_once",
        "a",
        "ok",
        metrics={"members": 5, "step_time": 0.002, "test_accuracy": 0.5},
        provenance={"case_seconds": 12.34},
    )
    failed = Record("at_once", "b", "failed", message="no memory", metrics={"step_time": 0.1})
    file = io.StringIO()
    with StudyProgress(Console(file=file, width=20), "at_once") as cases:
        cases.end("lenet5-[b]-32", record, "1/3", columns, is_old=False)
        cases.end("b", failed, "2/3", columns, is_old=False)
        cases.end("c", record, "3/3", ("members",), is_old=True)
    with StudyProgress(Console(file=file), "train", shown=False) as cases:
        cases.end("a", record, "1/1", columns, is_old=False)
    assert file.getvalue().splitlines() == [
        "at_once 1/3  lenet5-[b]-32  step time 2 ms  12.3 s",
        "at_once 2/3  b  failed: no memory  0.0 s",
        "at_once 3/3  c  ok  measured earlier",
    ]


def test_on_a_terminal_the_bar_shows_that_a_case_has_ended(terminal):
    console, read_output = terminal
    with StudyProgress(console, "search") as cases:
        cases.begin("a", 1, [])
        cases.end("a", Record("s", "a", "ok"), "1/1", (), is_old=False)
        assert "1/1  a" not in read_output()


def test_combined_watcher_passes_every_event_to_each_watcher():
    events = []

    class Watcher:
        def on_dispatch(self, *event):
            events.append(event)

        def on_epoch(self, *event):
            events.append(event)

    combined = CombinedWatcher(Watcher(), Watcher())
    combined.on_dispatch(3, 0.5, 2, 0.1)
    combined.on_epoch(EPOCH, True)
    assert events == [(3, 0.5, 2, 0.1)] * 2 + [(EPOCH, True)] * 2
