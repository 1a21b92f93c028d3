"""What is seen while it runs, on a terminal and where there is none."""

import io
import os
import re
import select

import pytest
from rich.console import Console

from experiments.harness.progress import Cases, Progress, Together
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
    """A console on a real pseudo-terminal of 80 columns, and a function that gives what was drawn so far."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    reading, writing = os.openpty()

    def drawn() -> str:
        pieces = []
        while select.select([reading], [], [], 0)[0]:
            pieces.append(os.read(reading, 4096))
        return b"".join(pieces).decode()

    with os.fdopen(writing, "w") as file:
        yield Console(file=file, width=80), drawn
    os.close(reading)


def plain(drawn: str) -> list[str]:
    """Lines without control sequences."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn))


def test_the_bar_shows_steps_time_left_loss_and_rate(terminal):
    console, drawn = terminal
    with Progress(console, FitConfig(2, 600), 32, step=100) as progress:
        assert any(
            line.startswith("compiling") and "100/1200 steps -:--:--" in line
            for line in plain(drawn())
        )
        progress.on_dispatch(110, 0.5, 10, 0.1)
        progress.on_dispatch(120, 0.25, 10, 0.1)
        progress._bar.refresh()
        lines = plain(drawn())
    (line,) = {line for line in lines if "0.2500" in line}
    assert line.startswith("training ━") and len(line.rstrip()) <= 80
    # 10 steps of 32 images in a tenth of a second
    assert re.search(r" 120/1200 steps \d+:\d\d:\d\d loss 0\.2500, 3,200 images/s", line)


def test_an_epoch_leaves_a_line_and_the_bar_none(terminal):
    console, drawn = terminal
    with Progress(console, FitConfig(2, 600), 32) as progress:
        progress.on_dispatch(600, 0.5, 10, 0.1)
        progress.on_epoch(EPOCH, True)
    after = drawn()
    assert (
        "epoch   1/2  loss 0.5000  validation loss 0.2500  accuracy 0.7500  2.0 s  best"
        in plain(after)
    )
    assert after.endswith("\x1b[1A\x1b[2K"), "up to the bar's line, which is erased"


def test_where_there_is_no_terminal_there_are_plain_lines_and_no_bar():
    file = io.StringIO()
    console = Console(file=file, width=120)
    with Cases(console, "train") as cases, Progress(console, FitConfig(2, 600), 32) as progress:
        cases.begin("a", 2, [])
        progress.on_dispatch(600, 0.5, 10, 0.1)
        progress.on_epoch(EPOCH, False)
    assert (
        file.getvalue()
        == "epoch   1/2  loss 0.5000  validation loss 0.2500  accuracy 0.7500  2.0 s\n"
    )


def test_the_bars_of_cases_and_of_a_training_are_drawn_together(terminal):
    console, drawn = terminal
    done = [
        Record("s", "a", "ok", provenance={"case_seconds": seconds}) for seconds in (300.0, 900.0)
    ]
    name = "a_long_name_" * 8
    with Cases(console, "search") as cases:
        cases.begin(name, 3, done)
        with Progress(console, FitConfig(2, 600), 32) as progress:
            drawn()
            progress.on_dispatch(30, 0.5, 10, 0.1)
            progress._bar.refresh()
            frame = plain(drawn())
    outer = next(line for line in frame if line.startswith("search"))
    # three cases of 600 s on average; the clock is running
    assert (
        re.search(r"━ 2/5 cases 0:(30:00|29:\d\d) a_long_name_.*…", outer)
        and len(outer.rstrip()) <= 80
    )
    assert frame[frame.index(outer) + 1].startswith(("training ━", "training ╸"))


def test_the_first_case_has_no_time_left_and_one_case_no_bar(terminal):
    console, drawn = terminal
    with Cases(console, "search") as cases:
        cases.begin("a", 3, [])
        assert any("0/3 cases -:--:-- a" in line for line in plain(drawn()))
    with Cases(console, "search", shown=False) as cases:
        cases.begin("a", 1, [])
        console.print("all")
        assert plain(drawn())[-2:] == ["all", ""]


def test_several_watchers_are_told_the_same():
    told = []

    class Watcher:
        def on_dispatch(self, *facts):
            told.append(facts)

        def on_epoch(self, *facts):
            told.append(facts)

    both = Together(Watcher(), Watcher())
    both.on_dispatch(3, 0.5, 2, 0.1)
    both.on_epoch(EPOCH, True)
    assert told == [(3, 0.5, 2, 0.1)] * 2 + [(EPOCH, True)] * 2
