"""Times the work of several workers in turn: one of them runs at a time, the others sleep."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.peers.process import Worker

# Seconds before each turn: OpenMP's threads spin for some milliseconds before they sleep.
SETTLE = 0.02


@dataclass(frozen=True)
class Turn:
    """One kind of work of one worker.

    Attributes:
      worker: that does it.
      work: ``train``, ``many_steps`` or ``infer``.
    """

    worker: Worker
    work: str

    @property
    def name(self) -> str:
        """The name of its samples."""
        return f"{self.worker.peer}: {self.work}"


@dataclass(frozen=True)
class Rounds:
    """The samples of all rounds.

    Attributes:
      samples: seconds per step or call, one per round, by the turn's name.
      calls: the number of calls in a sample, by the turn's name.
      idle_load: processor time of the workers during the turns of others, over the time of the
        turns.
    """

    samples: dict[str, list[float]]
    calls: dict[str, int]
    idle_load: float


def time_interleaved(
    turns: Sequence[Turn], rounds: int, *, sample: float, calls: Mapping[str, int] | None = None
) -> Rounds:
    """Takes one sample of each turn per round, every other round in reverse order.

    This is `measure.timing.time_interleaved` over processes.

    Args:
      turns: of workers that have already compiled this work.
      rounds: a comparison within one launch needs 7.
      sample: seconds that a sample takes; one call if that takes longer.
      calls: the number of calls in a sample, as an earlier launch had them, by the turn's name.
    """
    for turn in turns:
        turn.worker.call("time", turn.work, 1)  # a warm-up
    calls = {
        turn.name: calls[turn.name] if calls else _fitting_calls(turn, sample) for turn in turns
    }
    samples: dict[str, list[float]] = {turn.name: [] for turn in turns}
    idle = elapsed = 0.0
    workers = {turn.worker.peer: turn.worker for turn in turns}
    for round_ in range(rounds):
        for turn in turns[:: -1 if round_ % 2 else 1]:
            time.sleep(SETTLE)
            others = [worker for worker in workers.values() if worker is not turn.worker]
            before, start = _processor_time(others), time.perf_counter()
            samples[turn.name].append(turn.worker.call("time", turn.work, calls[turn.name]))
            elapsed += time.perf_counter() - start
            idle += _processor_time(others) - before
    return Rounds(samples, calls, idle / elapsed)


def _processor_time(workers: Sequence[Worker]) -> float:
    return sum(worker.processor_time() for worker in workers)


def _fitting_calls(turn: Turn, sample: float) -> int:
    """The number of calls that take as long as a sample should."""
    return max(1, math.ceil(sample / turn.worker.call("time", turn.work, 2)))
