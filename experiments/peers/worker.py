"""The process of one peer: builds its network once, then serves calls, one line of JSON each way.

``python -m experiments.peers.worker PEER TASK`` reads calls from stdin and writes results to
stdout; all other output goes to stderr.
"""

import json
import os
import pickle
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from experiments.measure import allocation
from experiments.peers.layers import Dropout, Task
from experiments.peers.memory import peak_memory_of

STEPS = 2  # whose losses are compared, and during which memory is measured


def build(peer: str, task: Task) -> Any:
    """A peer's network, with methods `logits`, `losses`, `train` and `infer`.

    Args:
      peer: a key of `process.PEERS`.
      task: to perform.
    """
    library, *variant = peer.split()
    if library == "torch":
        from experiments.peers.in_torch import Torch

        return Torch(task, channels_last="channels-last" in variant, compiled="compiled" in variant)
    if library == "keras":
        from experiments.peers.in_keras import Keras

        return Keras(task, xla="xla" in variant)
    if library == "flax":
        from experiments.peers.in_flax import Flax

        return Flax(task)
    from experiments.peers.ours import Ours

    return Ours(task)


class PeerMethods:
    """The methods that `process.Worker.call` can call, by name.

    Args:
      peer: a key of `process.PEERS`.
      task: to perform.
    """

    def __init__(self, peer: str, task: Task):
        self.peer, self.task, self.network = peer, task, build(peer, task)

    def first_step(self) -> float:
        """Takes a step and waits for it; returns its loss."""
        return self.network.losses(1)[0]

    def outputs(self) -> dict[str, list]:
        """The logits in evaluation, and the losses of the first steps, without dropout."""
        logits = self.network.logits().tolist()
        has_dropout = any(isinstance(layer, Dropout) for layer in self.task.layers)
        network = build(self.peer, self.task.without_dropout()) if has_dropout else self.network
        return {"logits": logits, "losses": network.losses(STEPS)}

    def peak_memory(self) -> int | None:
        """Peak resident bytes of a train step."""
        self.network.train(1)
        return peak_memory_of(partial(self.network.train, STEPS))

    def step_metrics(self) -> dict[str, float]:
        """FLOPs, bytes and parameters of a step; only for ``ours``."""
        return self.network.step_metrics()

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
        if peer == "ours":
            allocation.keep_freed_memory()  # as our command line does
        methods = PeerMethods(peer, pickle.loads(Path(path).read_bytes()))
        for line in sys.stdin:
            name, arguments = json.loads(line)
            print(json.dumps(getattr(methods, name)(*arguments)), file=results)


if __name__ == "__main__":
    main()
