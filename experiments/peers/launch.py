"""One launch: a process for each peer, all started anew, compared with ours and timed in turn."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.peers.process import PEERS, PeerFailed, Worker
from experiments.peers.rounds import Rounds, Turn, time_interleaved
from experiments.peers.verdict import check_agreement


class LaunchFailed(Exception):
    """There is nothing to compare: ours failed, or ours or half of the peers disagree.

    Attributes:
      differences: of each peer from ours, as far as they are known.
    """

    def __init__(self, message: str, differences: dict[str, dict[str, float]] | None = None):
        super().__init__(message)
        self.differences = differences or {}


@dataclass(frozen=True)
class Launch:
    """What one launch measured.

    Attributes:
      rounds: the samples.
      memory: peak resident bytes of a train step, by peer that can be trained; None if unknown.
      differences: of the outputs of each peer from ours, see `verdict.check_agreement`.
      freed_memory_kept: whether the peer's process keeps freed memory, by peer.
      excluded: why a peer was not timed, by peer.
    """

    rounds: Rounds
    memory: dict[str, int | None]
    differences: dict[str, dict[str, float]]
    freed_memory_kept: dict[str, bool]
    excluded: dict[str, str] = field(default_factory=dict)


def run_launch(
    start: Callable[[str], Worker],
    peers: Sequence[str],
    rounds: int,
    *,
    sample: float,
    calls: Mapping[str, int] | None,
    report: Callable[[str], None],
) -> Launch:
    """Starts all peers, checks that they agree, and times them in turn.

    Args:
      start: starts the process of a peer.
      peers: keys of `PEERS`, ``ours`` among them.
      rounds, sample, calls: see `time_interleaved`.
      report: gets the name of each peer before it compiles.

    Raises:
      LaunchFailed: our worker failed, or ours or half of the peers compute something else. Fewer
        than half are excluded, as are those that fail.
    """
    excluded: dict[str, str] = {}
    with _start_workers(start, peers) as workers:
        outputs = _compile(workers, excluded, report)
        differences, disagreeing = check_agreement(outputs)
        if "ours" in disagreeing or 2 * len(disagreeing) >= len(differences) > 0:
            raise LaunchFailed("; ".join(disagreeing.values()), differences)
        for peer, reason in disagreeing.items():
            _exclude(workers, peer, reason, excluded)
        turns = [
            Turn(worker, work) for worker in workers.values() for work in PEERS[worker.peer].works
        ]
        result = time_interleaved(turns, rounds, sample=sample, calls=calls)
        freed_memory_kept = {
            peer: worker.call("freed_memory_kept") for peer, worker in workers.items()
        }
    memory = {
        peer: outputs[peer]["memory"] for peer in freed_memory_kept if "memory" in outputs[peer]
    }
    return Launch(result, memory, differences, freed_memory_kept, excluded)


@contextlib.contextmanager
def _start_workers(
    start: Callable[[str], Worker], peers: Sequence[str]
) -> Iterator[dict[str, Worker]]:
    with contextlib.ExitStack() as stack:
        yield {peer: stack.enter_context(contextlib.closing(start(peer))) for peer in peers}


def _compile(
    workers: dict[str, Worker], excluded: dict[str, str], report: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """The logits of each peer, and the losses and memory of those that can be trained.

    Those that fail are excluded.

    Raises:
      LaunchFailed: our worker failed.
    """
    outputs: dict[str, dict[str, Any]] = {}
    for peer, worker in list(workers.items()):
        report(peer)
        try:
            result = {"logits": worker.call("logits")}
            if PEERS[peer].trains:
                result |= {"losses": worker.call("losses"), "memory": worker.call("peak_memory")}
        except PeerFailed as error:
            if peer == "ours":
                raise LaunchFailed(str(error)) from error
            _exclude(workers, peer, str(error), excluded)
        else:
            outputs[peer] = result
    return outputs


def _exclude(workers: dict[str, Worker], peer: str, reason: str, excluded: dict[str, str]) -> None:
    """Ends a worker and removes it from the others."""
    workers.pop(peer).close()
    excluded[peer] = reason
