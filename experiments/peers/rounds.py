"""Times what workers do in turn, one of them at a time, the others asleep."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.peers.process import Worker

SETTLE = (
    0.02  # seconds before each turn: OpenMP's threads spin for some milliseconds before they sleep
)


@dataclass(frozen=True)
class Turn:
    """What one worker does: ``train``, ``once`` or ``infer``."""

    worker: Worker
    what: str

    @property
    def name(self) -> str:
        return f"{self.worker.peer}: {self.what}"


@dataclass(frozen=True)
class Rounds:
    """What came of it.

    Attributes:
      samples: seconds a step or call, one a round, by the turn's name.
      calls: in one sample.
      idle_load: processor time of the workers whose turn it was not, over the time of the turns.
    """

    samples: dict[str, list[float]]
    calls: dict[str, int]
    idle_load: float


def interleaved(turns: Sequence[Turn], rounds: int, *, sample: float) -> Rounds:
    """One sample of each turn a round, every other round backwards, as `measure.timing.interleaved`, over processes.

    Args:
      turns: of any workers, each asked often enough before to have compiled what it does.
      rounds: a comparison needs 7.
      sample: seconds that a sample takes, or one call if that takes longer.
    """
    calls = {turn.name: max(1, math.ceil(sample / _estimate(turn))) for turn in turns}
    samples: dict[str, list[float]] = {turn.name: [] for turn in turns}
    idle = spent = 0.0
    workers = {turn.worker.peer: turn.worker for turn in turns}
    for round_ in range(rounds):
        for turn in turns[:: -1 if round_ % 2 else 1]:
            time.sleep(SETTLE)
            others = [worker for worker in workers.values() if worker is not turn.worker]
            before, start = sum(other.processor_time() for other in others), time.perf_counter()
            samples[turn.name].append(turn.worker.ask("timed", turn.what, calls[turn.name]))
            spent += time.perf_counter() - start
            idle += sum(other.processor_time() for other in others) - before
    return Rounds(samples, calls, idle / spent)


def _estimate(turn: Turn) -> float:
    """Seconds a call, once it is warm."""
    turn.worker.ask("timed", turn.what, 1)
    return turn.worker.ask("timed", turn.what, 2)
