"""Progress on the terminal: a bar with the time left where there is a terminal, a line an epoch where there is none."""

import rich.progress
from rich.console import Console

from jaxcnn.training import Plan


class Progress:
    """A `training.loop.Watcher`; use as a context manager."""

    def __init__(self, console: Console, plan: Plan, batch_size: int, step: int = 0):
        self._console = console
        self._plan = plan
        self._batch_size = batch_size
        columns = ("[progress.description]{task.description}", rich.progress.BarColumn(), "{task.completed}/{task.total} steps")
        shown = (*columns, rich.progress.TimeRemainingColumn(), "{task.fields[now]}")
        self._bar = rich.progress.Progress(*shown, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("training", total=plan.steps, completed=step, now="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def on_dispatch(self, step: int, loss: float, steps: int, seconds: float) -> None:
        rate = steps * self._batch_size / seconds
        self._bar.update(self._task, completed=step, now=f"loss {loss:.4f} · {rate:,.0f} images/s")

    def on_epoch(self, entry: dict[str, float], best: bool) -> None:
        stage = f" stage {entry['stage']}/{self._plan.stages}" if self._plan.stages > 1 else f"/{self._plan.epochs}"
        self._console.print(
            f"epoch {entry['epoch']:>3}{stage}  loss {entry['train_loss']:.4f}  "
            f"validation loss {entry['validation_loss']:.4f}  accuracy {entry['validation_accuracy']:.4f}  "
            f"{entry['seconds']:.1f} s{'  best' if best else ''}",
            highlight=False,
        )
