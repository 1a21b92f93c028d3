"""The process of one peer: builds its network once, then serves calls, one line of JSON each way.

``python -m experiments.peers.worker PEER TASK`` reads calls from stdin and writes results to
stdout; all other output goes to stderr.

All libraries get the same setting of the allocator. It must be made before the first thread starts,
so the imports at the top are few, and none imports NumPy.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxcnn
from experiments.peers.memory import peak_memory_of
from jaxcnn.allocation import keeps_freed_memory

if TYPE_CHECKING:
    from experiments.peers.task import Task

STEPS = 2  # whose losses are compared, and during which memory is measured


def build(peer: str, task: "Task") -> Any:
    """A peer's network, with the methods of its `Peer.works`, and `logits` and `losses`.

    Args:
      peer: a key of `process.PEERS`.
      task: to perform.
    """
    library, *variant = peer.split()
    if library == "torch":
        from experiments.peers.in_torch import Torch

        return Torch(
            task,
            channels_last="channels-last" in variant,
            compiled="compiled" in variant,
            frozen="frozen" in variant,
        )
    if library == "keras":
        from experiments.peers.in_keras import Keras

        return Keras(task, xla="xla" in variant)
    if library == "flax":
        from experiments.peers.in_flax import Flax

        return Flax(task)
    from experiments.peers.ours import Ours

    return Ours(task, frozen="frozen" in variant)


class PeerMethods:
    """The methods that `process.Worker.call` can call, by name.

    Args:
      peer: a key of `process.PEERS`.
      task: to perform.
    """

    def __init__(self, peer: str, task: "Task"):
        self.peer, self.task, self.network = peer, task, build(peer, task)

    def first_step(self) -> float:
        """Takes a step and waits for it; returns its loss."""
        return self.network.losses(1)[0]

    def logits(self) -> list[list[float]]:
        """The logits in evaluation."""
        return self.network.logits().tolist()

    def losses(self) -> list[float]:
        """The losses of the first steps, without dropout."""
        has_dropout = self.task.has_dropout
        network = build(self.peer, self.task.without_dropout()) if has_dropout else self.network
        return network.losses(STEPS)

    def freed_memory_kept(self) -> bool:
        """Whether `jaxcnn.keep_freed_memory` took effect."""
        return keeps_freed_memory()

    def peak_memory(self) -> int | None:
        """Peak bytes of a train step: resident ones, or those of the accelerator."""
        self.network.train(1)
        if self.task.platform != "cpu":
            return self.network.device_memory_peak()
        return peak_memory_of(partial(self.network.train, STEPS))

    def step_metrics(self) -> dict[str, float]:
        """FLOPs, bytes and parameters of a step; only for ``ours``."""
        return self.network.step_metrics()

    def uses_winograd(self) -> bool:
        """See `ours.Ours.uses_winograd`; only for ``ours``."""
        return self.network.uses_winograd()

    def time(self, work: str, calls: int) -> float:
        """Seconds per call over several successive calls.

        If there is more than one, an untimed call comes first, because the process was asleep.

        Args:
          work: a method of the network that takes a number of calls.
          calls: the number of calls.
        """
        run = getattr(self.network, work)
        if calls > 1:
            run(1)
        start = time.perf_counter()
        run(calls)
        return (time.perf_counter() - start) / calls


def main() -> None:
    """Serves calls until stdin ends."""
    with os.fdopen(os.dup(1), "w", buffering=1) as results:
        os.dup2(2, 1)  # libraries may print to stdout
        peer, path = sys.argv[1:]
        jaxcnn.keep_freed_memory()
        from experiments.peers import task_file  # imports NumPy

        methods = PeerMethods(peer, task_file.load(Path(path)))
        for line in sys.stdin:
            name, arguments = json.loads(line)
            print(json.dumps(getattr(methods, name)(*arguments)), file=results)


if __name__ == "__main__":
    main()
