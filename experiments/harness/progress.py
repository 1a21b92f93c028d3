"""Progress on the console: bars with the time left on a terminal, plain lines elsewhere.

The bar of a study and the bar of a training run inside it are drawn one below the other.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import rich.progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

from experiments.records import Record
from experiments.records.formatting import headline
from jaxcnn.training import FitConfig
from jaxcnn.training.loop import Watcher

REFRESHES_PER_SECOND = 2  # few, because drawing takes processor time from what is measured
SPEED_WINDOW = 600.0  # seconds over which the speed is averaged; a step may take a minute


class TrainingProgress:
    """A `training.loop.Watcher` that draws a bar of the steps and prints a line per epoch.

    It is a context manager, to be entered before the compilation.

    Args:
      console: to draw on.
      config: of the training run.
      batch_size: images per step.
      step: steps done in earlier sessions.
    """

    def __init__(self, console: Console, config: FitConfig, batch_size: int, step: int = 0):
        self._console = console
        self._config = config
        self._batch_size = batch_size
        columns = (
            "{task.completed}/{task.total} steps",
            rich.progress.TimeRemainingColumn(),
            _text_column("{task.fields[now]}"),
        )
        self._bar = _make_bar(console, *columns)
        self._task = self._bar.add_task("compiling", total=config.steps, completed=step, now="")

    def __enter__(self) -> "TrainingProgress":
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
            now=f"loss {_fixed(loss)}, {rate:,.0f} images/s",
        )

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        several_stages = self._config.stages > 1
        limit = (
            f" stage {entry['stage']}/{self._config.stages}"
            if several_stages
            else f"/{self._config.epochs}"
        )
        self._console.print(
            f"epoch {entry['epoch']:>3}{limit}  loss {_fixed(entry['train_loss'])}  "
            f"validation loss {_fixed(entry['validation_loss'])}  "
            f"accuracy {entry['validation_accuracy']:.4f}  "
            f"{entry['seconds']:.1f} s{'  best' if best else ''}",
            highlight=False,
        )


def _fixed(loss: float) -> str:
    """With four decimals; that of a training that diverges in powers of ten."""
    return f"{loss:.4f}" if abs(loss) < 1e5 else f"{loss:.2e}"


class StudyProgress:
    """A bar of the cases of a study; a context manager.

    Args:
      console: to draw on.
      study: the name of the study.
      shown: False draws nothing.
    """

    def __init__(self, console: Console, study: str, shown: bool = True):
        columns = (
            "{task.completed}/{task.total} cases",
            _TimeLeftColumn(),
            _text_column("{task.fields[case]}", ratio=2),
        )
        self._console, self._study, self._shown = console, study, shown
        self._bar = _make_bar(console, *columns, shown=shown)
        self._task = self._bar.add_task(
            study, visible=False, case="", seconds_per_case=None, since=0.0
        )

    def __enter__(self) -> "StudyProgress":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def begin(self, case: str, remaining: int, done: Sequence[Record]) -> None:
        """Shows that a case begins.

        Args:
          case: its name.
          remaining: number of cases that are still to be measured, this one included.
          done: the records of the cases before it.
        """
        durations = [
            record.provenance["case_seconds"]
            for record in done
            if "case_seconds" in record.provenance
        ]
        self._bar.update(
            self._task,
            completed=len(done),
            total=len(done) + remaining,
            visible=True,
            case=case,
            seconds_per_case=sum(durations) / len(durations) if durations else None,
            since=time.monotonic(),
            refresh=True,
        )

    def end(
        self, case: str, record: Record, place: str, columns: Sequence[str], *, is_old: bool
    ) -> None:
        """Prints a line about a case that has ended, where no bar shows that.

        Args:
          case: its name.
          record: its record.
          place: which one it is, such as ``3/8``.
          columns: the metrics of the study; the first that is not a count is printed.
          is_old: whether it was measured earlier.
        """
        if not self._shown or self._console.is_interactive:
            return
        seconds = record.provenance.get("case_seconds")
        time_taken = "measured earlier" if is_old else f"{seconds or 0.0:.1f} s"
        line = f"{self._study} {place}  {case}  {headline(record, columns)}  {time_taken}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def seconds_left(seconds_per_case: float, remaining: int, elapsed: float) -> float:
    """Estimates the time left for several cases, the first of which is running.

    Args:
      seconds_per_case: the expected time of a case. A running case that has taken longer is counted
        as finished.
      remaining: number of cases, the running one included.
      elapsed: seconds since the running case began.

    >>> seconds_left(10.0, 3, elapsed=4.0), seconds_left(10.0, 3, elapsed=25.0)
    (26.0, 20.0)
    """
    return seconds_per_case * (remaining - 1) + max(0.0, seconds_per_case - elapsed)


class CombinedWatcher:
    """A `training.loop.Watcher` that passes every event on to several watchers."""

    def __init__(self, *watchers: Watcher):
        self._watchers = watchers

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        for watcher in self._watchers:
            watcher.on_dispatch(step, loss, steps, seconds)

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        for watcher in self._watchers:
            watcher.on_epoch(entry, best)


class _TimeLeftColumn(rich.progress.ProgressColumn):
    """The time left, from the mean time of the finished cases; counted down while a case runs."""

    def render(self, task: rich.progress.Task) -> Text:
        seconds_per_case = task.fields["seconds_per_case"]
        if seconds_per_case is None:
            return Text("-:--:--", style="progress.remaining")
        elapsed = time.monotonic() - task.fields["since"]
        seconds = seconds_left(seconds_per_case, int(task.remaining), elapsed)
        return Text(str(timedelta(seconds=round(seconds))), style="progress.remaining")


def _make_bar(
    console: Console, *columns: str | rich.progress.ProgressColumn, shown: bool = True
) -> rich.progress.Progress:
    return rich.progress.Progress(
        "{task.description}",
        rich.progress.BarColumn(None, table_column=Column(ratio=1, min_width=4)),
        *columns,
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=REFRESHES_PER_SECOND,
        speed_estimate_period=SPEED_WINDOW,
        disable=not (shown and console.is_interactive),
    )


def _text_column(text: str, ratio: int | None = None) -> rich.progress.TextColumn:
    """A column that is truncated with … if it does not fit.

    `ratio` is its share of the width that the columns of fixed width leave.
    """
    return rich.progress.TextColumn(
        text, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    )
