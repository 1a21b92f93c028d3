"""The process of one peer: builds its network once, then does what it is asked, a line of JSON each way.

``python -m experiments.peers.worker PEER TASK``: questions on stdin, answers on stdout, all else that is said on stderr.
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
from experiments.peers.memory import peak_of

SEEN = 2  # steps whose losses are compared, and that memory is watched over


def program(peer: str, task: Task) -> Any:
    """A peer's network, by its name in `peers.PEERS`; with `logits`, `losses`, `train` and `infer`."""
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


class Predictions:
    """What a worker can be asked: the methods, by name.

    Attributes:
      peer: its name.
      task: see `Task`.
      program: the network.
    """

    def __init__(self, peer: str, task: Task):
        self.peer, self.task, self.program = peer, task, program(peer, task)

    def first(self) -> float:
        """The loss of one step, by which it is finished."""
        return self.program.losses(1)[0]

    def agreement(self) -> dict[str, list]:
        """Logits in evaluation and the losses of the first steps; those of the network without dropout, if it has any."""
        logits = self.program.logits().tolist()
        drawing = any(isinstance(layer, Dropout) for layer in self.task.layers)
        alike = program(self.peer, self.task.without_dropout()) if drawing else self.program
        return {"logits": logits, "losses": alike.losses(SEEN)}

    def memory(self) -> int | None:
        """Peak resident bytes of a train step."""
        self.program.train(1)
        return peak_of(partial(self.program.train, SEEN))

    def facts(self) -> dict[str, float]:
        """Of a step; ours alone knows them."""
        return self.program.facts()

    def timed(self, what: str, calls: int) -> float:
        """Seconds a call, so many in a row; where there are several, after one that is not timed, as the process has slept."""
        work = getattr(self.program, what)
        if calls > 1:
            work(1)
        start = time.perf_counter()
        work(calls)
        return (time.perf_counter() - start) / calls


def main() -> None:
    """Answers until stdin ends."""
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # libraries print where they like
        peer, path = sys.argv[1:]
        if peer == "ours":
            allocation.keep_freed_memory()  # as our command line does
        asked = Predictions(peer, pickle.loads(Path(path).read_bytes()))
        for line in sys.stdin:
            name, arguments = json.loads(line)
            print(json.dumps(getattr(asked, name)(*arguments)), file=answers)


if __name__ == "__main__":
    main()
