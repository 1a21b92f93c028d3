"""Progress on the terminal: bars with the time left where there is a terminal, plain lines where there is none.

The bar of a study's cases and that of the training inside one are drawn together, one below the other.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import rich.progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

from experiments.records import Record
from jaxcnn.training import FitConfig
from jaxcnn.training.loop import Watcher

PER_SECOND = 2  # drawings: drawing takes processor time from what is measured
LOOK_BACK = 600.0  # seconds of steps that the time left goes by: a step may take a minute


class Progress:
    """A `training.loop.Watcher`; use as a context manager, from before the compilation on."""

    def __init__(self, console: Console, plan: FitConfig, batch_size: int, step: int = 0):
        self._console = console
        self._plan = plan
        self._batch_size = batch_size
        columns = (
            "{task.completed}/{task.total} steps",
            rich.progress.TimeRemainingColumn(),
            _cut("{task.fields[now]}"),
        )
        self._bar = _bar(console, *columns)
        self._task = self._bar.add_task("compiling", total=plan.steps, completed=step, now="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        rate = steps * self._batch_size / seconds
        self._bar.update(
            self._task,
            description="training",
            completed=step,
            now=f"loss {loss:.4f}, {rate:,.0f} images/s",
        )

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        stage = (
            f" stage {entry['stage']}/{self._plan.stages}"
            if self._plan.stages > 1
            else f"/{self._plan.epochs}"
        )
        self._console.print(
            f"epoch {entry['epoch']:>3}{stage}  loss {entry['train_loss']:.4f}  "
            f"validation loss {entry['validation_loss']:.4f}  accuracy {entry['validation_accuracy']:.4f}  "
            f"{entry['seconds']:.1f} s{'  best' if best else ''}",
            highlight=False,
        )


class Cases:
    """How far a study of many cases is; use as a context manager."""

    def __init__(self, console: Console, study: str, shown: bool = True):
        columns = (
            "{task.completed}/{task.total} cases",
            _CasesLeft(),
            _cut("{task.fields[case]}", ratio=2),
        )
        self._bar = _bar(console, *columns, shown=shown)
        self._task = self._bar.add_task(study, visible=False, case="", each=None, since=0.0)

    def __enter__(self) -> "Cases":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def begin(self, case: str, waiting: int, found: Sequence[Record]) -> None:
        """A case begins.

        Args:
          case: its name.
          waiting: how many are to be measured, this one included.
          found: the records of those before it.
        """
        known = [
            record.provenance["case_seconds"]
            for record in found
            if "case_seconds" in record.provenance
        ]
        each = sum(known) / len(known) if known else None
        total = len(found) + waiting
        self._bar.update(
            self._task,
            completed=len(found),
            total=total,
            visible=True,
            case=case,
            each=each,
            since=time.monotonic(),
            refresh=True,
        )


def seconds_left(each: float, waiting: int, elapsed: float) -> float:
    """That a case under way and those after it will take, if each takes so long; one that takes longer is as good as done.

    >>> seconds_left(10.0, 3, elapsed=4.0), seconds_left(10.0, 3, elapsed=25.0)
    (26.0, 20.0)
    """
    return each * (waiting - 1) + max(0.0, each - elapsed)


class Together:
    """Several `training.loop.Watcher`s as one."""

    def __init__(self, *watchers: Watcher):
        self._watchers = watchers

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        for watcher in self._watchers:
            watcher.on_dispatch(step, loss, steps, seconds)

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        for watcher in self._watchers:
            watcher.on_epoch(entry, best)


class _CasesLeft(rich.progress.ProgressColumn):
    """The time left by what the cases before took, in this sitting or in one before, counted down while one runs."""

    def render(self, task: rich.progress.Task) -> Text:
        if task.fields["each"] is None:
            return Text("-:--:--", style="progress.remaining")
        left = seconds_left(
            task.fields["each"], int(task.remaining), time.monotonic() - task.fields["since"]
        )
        return Text(str(timedelta(seconds=round(left))), style="progress.remaining")


def _bar(
    console: Console, *columns: str | rich.progress.ProgressColumn, shown: bool = True
) -> rich.progress.Progress:
    return rich.progress.Progress(
        "{task.description}",
        rich.progress.BarColumn(None, table_column=Column(ratio=1, min_width=4)),
        *columns,
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=PER_SECOND,
        speed_estimate_period=LOOK_BACK,
        disable=not (shown and console.is_interactive),
    )


def _cut(text: str, ratio: int | None = None) -> rich.progress.TextColumn:
    """A column that ends in … where there is no room for it; `ratio` is its share of the room that the others leave."""
    return rich.progress.TextColumn(
        text, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    )
