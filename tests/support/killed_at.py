"""Runs ``experiments.run`` and kills itself at the N-th operation on a file of the results.

python -m tests.support.killed_at N RESULTS OPTIONS…
"""

import os
import runpy
import signal
import sys

EVENTS = {"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def main() -> None:
    number, results, *options = sys.argv[1:]
    left = [int(number)]

    def count(event: str, arguments: tuple) -> None:
        if event not in EVENTS or not isinstance(arguments[0], str | bytes):
            return
        if results in os.fsdecode(arguments[0]):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    sys.argv = ["experiments.run", f"--results={results}", *options]
    runpy.run_module("experiments.run", run_name="__main__")


if __name__ == "__main__":
    main()
