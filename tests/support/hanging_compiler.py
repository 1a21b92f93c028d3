"""A compiler's process that never answers: ``python -m tests.support.hanging_compiler OPTIONS``.

The file that ``STARTED`` names appears when the process has started; with ``SLOW_IMPORT`` when it
begins to import this module, which then takes seconds.
"""

import multiprocessing
import os
import sys
import time
from pathlib import Path


def _show_start() -> None:
    Path(os.environ["STARTED"]).touch()


if multiprocessing.parent_process() is not None and "SLOW_IMPORT" in os.environ:
    _show_start()
    time.sleep(5)


def serve(connection, log, devices, folder, owner) -> None:
    """In place of `experiments.preflight.worker.serve`."""
    _show_start()
    connection.recv()
    time.sleep(600)


if __name__ == "__main__":
    from experiments import interrupts
    from experiments.preflight import compiler_process
    from tests.support import hanging_compiler

    interrupts.install()
    compiler_process.serve = hanging_compiler.serve
    compiler_process._EXIT_SECONDS = 3600  # whoever waits for it, waits too long
    from experiments.preflight.__main__ import main

    interrupts.exit_with(main(sys.argv[1:]))
