"""One launch: a process for each peer, all started anew, compared with ours and timed.

The processes wait for one another and are timed in turn, so that what disturbs one disturbs all. On
an accelerator whose memory does not hold all of them, one is started after the other has ended.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.peers.process import PeerFailed, Worker
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
    works: Mapping[str, Sequence[str]],
    rounds: int,
    *,
    precision: str = "float32",
    one_at_a_time: bool = False,
    sample: float,
    calls: Mapping[str, int] | None,
    report: Callable[[str], None],
) -> Launch:
    """Starts all peers, checks that they agree, and times them.

    Args:
      start: starts the process of a peer.
      works: those of its `Peer.works` that each peer is timed in, by the key of `PEERS`; those of
        ``ours`` among them.
      precision: a key of `verdict.TOLERANCES`.
      one_at_a_time: whether a peer is started when the one before has been timed and has ended.
      rounds, sample, calls: see `time_interleaved`.
      report: gets the name of each peer before it compiles.

    Raises:
      LaunchFailed: our worker failed, or ours or half of the peers compute something else. Fewer
        than half are excluded, as are those that fail.
    """
    excluded: dict[str, str] = {}
    outputs: dict[str, dict[str, Any]] = {}
    freed_memory_kept: dict[str, bool] = {}
    parts: list[Rounds] = []
    for group in [[peer] for peer in works] if one_at_a_time else [list(works)]:
        with _start_workers(start, group) as workers:
            outputs |= _compile(workers, works, excluded, report)
            if not one_at_a_time:
                differences, disagreeing = _check(outputs, precision)
                for peer in disagreeing:
                    workers.pop(peer).close()
            turns = [
                Turn(worker, work) for worker in workers.values() for work in works[worker.peer]
            ]
            if turns:
                parts.append(time_interleaved(turns, rounds, sample=sample, calls=calls))
            freed_memory_kept |= {
                peer: worker.call("freed_memory_kept") for peer, worker in workers.items()
            }
    if one_at_a_time:
        differences, disagreeing = _check(outputs, precision)
    excluded |= disagreeing
    timed = [peer for peer in freed_memory_kept if peer not in disagreeing]
    memory = {peer: outputs[peer]["memory"] for peer in timed if "memory" in outputs[peer]}
    return Launch(_merge(parts), memory, differences, freed_memory_kept, excluded)


def _check(
    outputs: Mapping[str, Mapping[str, Any]], precision: str
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """The differences and the excluded peers of `check_agreement`.

    Raises:
      LaunchFailed: ours or half of the peers compute something else.
    """
    differences, disagreeing = check_agreement(outputs, precision)
    others = [peer for peer in differences if not _is_ours(peer)]
    is_ours = any(map(_is_ours, disagreeing))
    if is_ours or 2 * len(disagreeing) >= len(others) > 0:
        raise LaunchFailed("; ".join(disagreeing.values()), differences)
    return differences, disagreeing


def _is_ours(peer: str) -> bool:
    return peer.startswith("ours")


def _merge(parts: Sequence[Rounds]) -> Rounds:
    """The samples of several groups of peers."""
    samples = {name: times for part in parts for name, times in part.samples.items()}
    calls = {name: count for part in parts for name, count in part.calls.items()}
    return Rounds(samples, calls, max(part.idle_load for part in parts))


@contextlib.contextmanager
def _start_workers(
    start: Callable[[str], Worker], peers: Sequence[str]
) -> Iterator[dict[str, Worker]]:
    with contextlib.ExitStack() as stack:
        yield {peer: stack.enter_context(contextlib.closing(start(peer))) for peer in peers}


def _compile(
    workers: dict[str, Worker],
    works: Mapping[str, Sequence[str]],
    excluded: dict[str, str],
    report: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """The logits of each peer, and the losses and memory of those that are trained.

    Those that fail are excluded.

    Raises:
      LaunchFailed: our worker failed.
    """
    outputs: dict[str, dict[str, Any]] = {}
    for peer, worker in list(workers.items()):
        report(peer)
        try:
            result = {"logits": worker.call("logits")}
            if "train" in works[peer]:
                result |= {"losses": worker.call("losses"), "memory": worker.call("peak_memory")}
        except PeerFailed as error:
            if _is_ours(peer):
                raise LaunchFailed(str(error)) from error
            workers.pop(peer).close()
            excluded[peer] = str(error)
        else:
            outputs[peer] = result
    return outputs
