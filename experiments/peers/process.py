"""The other end of a worker: starts it, asks it, ends it."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

# What each peer needs; the first word is the library's, the others say how it is used.
PEERS: dict[str, tuple[str, ...]] = {
    "ours": (),
    "flax": (),
    "torch": ("torch",),
    "torch channels-last": ("torch",),
    "torch compiled": ("torch",),
    "torch compiled channels-last": ("torch",),
    "keras": ("keras", "tensorflow"),
    "keras xla": ("keras", "tensorflow"),
}
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no processes of its own, that would wait beside the others
}


class PeerFailed(Exception):
    """A worker ended, or took too long; its last words are the message."""


def missing(peer: str) -> list[str]:
    """The packages that a peer needs and that are not installed."""
    return [package for package in PEERS[peer] if importlib.util.find_spec(package) is None]


class Worker:
    """A process of `experiments.peers.worker`.

    Attributes:
      peer: a key of `PEERS`.
    """

    def __init__(
        self,
        peer: str,
        task: Path,
        *,
        threads: int,
        time_limit: float,
        environment: Mapping[str, str] | None = None,
    ):
        self.peer, self.time_limit = peer, time_limit
        self._said = task.with_name(f"{peer.replace(' ', '_')}.said")
        count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with self._said.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "experiments.peers.worker", peer, str(task)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env=os.environ | ENVIRONMENT | count | dict(environment or {}),
            )  # fmt: skip

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of a method of `worker.Predictions`.

        Raises:
          PeerFailed: there was none.
        """
        late = threading.Timer(self.time_limit, self._kill)
        late.start()
        try:
            self._process.stdin.write(json.dumps([name, arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            late.cancel()
        if not answer:
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # its last words come after its last answer
                self._process.wait(10)
            raise PeerFailed(f"{self.peer}: {self._last_words()}")
        return json.loads(answer)

    def processor_time(self) -> float:
        """Seconds of processor time that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """Ends it, with all that it started."""
        self._kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # gone already
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _last_words(self) -> str:
        lines = [
            line.strip()
            for line in self._said.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        return (
            lines[-1]
            if lines
            else f"ended without a word, or took longer than {self.time_limit:g} s (--time-limit)"
        )
