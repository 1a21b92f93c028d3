"""The study: everything that measures. Imports from `jaxcnn`, never the other way."""

import gc
import sys


def set_up_process() -> None:
    """Prepares the process of a command, before its first import that takes a while.

    Signals end it in an orderly way. Garbage is looked for less often: imports and traces create
    many objects that live on, and with Python's own thresholds garbage collection takes a fifth of
    the processor time of a short run.
    """
    from experiments import interrupts

    interrupts.install()
    gc.set_threshold(50_000, 10, 10)


# Python is locating the module of ``python -m experiments.…``; a library that is imported leaves
# the signals and the garbage collector of the program alone.
if sys.argv[:1] == ["-m"]:
    set_up_process()
