"""The parent's side of a worker process: starts it, calls it, ends it."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True)
class Peer:
    """A row of `PEERS`.

    Attributes:
      packages: that it needs.
      works: the kinds of work that are timed, by the methods of the network in its process.
      in_bfloat16: whether it also computes in bfloat16.
      on_gpu: whether it also runs on a GPU.
    """

    packages: tuple[str, ...] = ()
    works: tuple[str, ...] = ("train", "infer")
    in_bfloat16: bool = False
    on_gpu: bool = False


KERAS = ("keras", "tensorflow")
# The first word of a peer's name is its library, the others say how it is used. A frozen network
# has fixed weights, which are laid out for inference beforehand, so it cannot be trained.
PEERS: dict[str, Peer] = {
    "ours": Peer(works=("train", "many_steps", "infer"), in_bfloat16=True, on_gpu=True),
    "ours frozen": Peer(works=("infer",)),
    "flax": Peer(),
    "torch": Peer(("torch",), in_bfloat16=True),
    "torch channels-last": Peer(("torch",), in_bfloat16=True, on_gpu=True),
    "torch compiled": Peer(("torch",), in_bfloat16=True),
    "torch compiled channels-last": Peer(("torch",), in_bfloat16=True, on_gpu=True),
    "torch compiled frozen": Peer(("torch",), works=("infer",)),
    "torch compiled frozen channels-last": Peer(("torch",), works=("infer",)),
    "keras": Peer(KERAS),
    "keras xla": Peer(KERAS),
}
ENVIRONMENT = {  # by platform
    "cpu": {
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # no compilation processes, which would wait beside the others
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    },
    "gpu": {},
}
LOG_TIMEOUT = 10  # seconds, for a worker that did not reply to end and complete its log


class PeerFailed(Exception):
    """A worker ended or took too long; the message has the last line of its log."""


def missing_packages(peer: str) -> list[str]:
    """The packages that a peer needs and that are not installed."""
    return [
        package for package in PEERS[peer].packages if importlib.util.find_spec(package) is None
    ]


class Worker:
    """A process that runs `experiments.peers.worker` for one peer.

    Args:
      peer: a key of `PEERS`.
      task: the file of the `Task`, by `task_file.save`; the log is written beside it.
      platform: a key of `ENVIRONMENT`.
      threads: that the library may use.
      time_limit: seconds for each call.
      environment: further variables of the process.
    """

    def __init__(
        self,
        peer: str,
        task: Path,
        *,
        platform: str = "cpu",
        threads: int,
        time_limit: float,
        environment: Mapping[str, str] | None = None,
    ):
        self.peer, self.time_limit = peer, time_limit
        self._log = task.with_name(f"{peer.replace(' ', '_')}.log")
        counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "experiments.peers.worker", peer, str(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | ENVIRONMENT[platform] | counts | dict(environment or {}),
            )

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of `worker.PeerMethods` and returns its result.

        Raises:
          PeerFailed: the process ended or took too long.
        """
        timer = threading.Timer(self.time_limit, self._kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps([method, arguments]) + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        finally:
            timer.cancel()
        if not reply:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOG_TIMEOUT)
            raise PeerFailed(f"{self.peer}: {self._last_log_line()}")
        return json.loads(reply)

    def processor_time(self) -> float:
        """Seconds of processor time that the process has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """Ends the process and all processes that it started; may be called again."""
        if self._process.stdin.closed:
            return
        self._kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _last_log_line(self) -> str:
        text = self._log.read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return lines[-1]
        return f"ended without a message, or took longer than {self.time_limit:g} s (--time-limit)"
