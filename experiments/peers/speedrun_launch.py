"""Runs the recipe of the study `speedrun` in PyTorch, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.process import PeerFailed
from experiments.peers.speedrun_task import SpeedrunTask


def run_in_torch(
    task: SpeedrunTask, arrays: Mapping[str, np.ndarray], time_limit: float
) -> dict[str, Any]:
    """Trains and tests; blocks until it is done.

    Args:
      task: the recipe.
      arrays: see `speedrun_torch.Training`; also ``test_images`` and ``test_labels``.
      time_limit: seconds, for compiling and testing too.

    Returns:
      ``training_time`` in seconds, ``steps``, the last ``loss``, ``test_accuracy``,
      ``test_accuracy_multicrop``, and ``variant``, the fastest way to use PyTorch.

    Raises:
      PeerFailed: the process ended without a result, or took too long.
    """
    threads = str(task.threads)
    with tempfile.TemporaryDirectory(prefix="jaxcnn-speedrun-") as folder:
        (Path(folder) / "task.json").write_text(json.dumps(task.to_json()))
        np.savez(Path(folder) / "data.npz", allow_pickle=False, **arrays)
        try:
            process = subprocess.run(
                [sys.executable, "-m", "experiments.peers.speedrun_torch", folder],
                capture_output=True,
                text=True,
                timeout=time_limit,
                env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            )
        except subprocess.TimeoutExpired as error:
            raise PeerFailed(f"torch: took longer than {time_limit:g} s (--time-limit)") from error
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        raise PeerFailed(f"torch: {lines[-1] if lines else 'ended without a message'}")
    return json.loads(process.stdout.splitlines()[-1])
