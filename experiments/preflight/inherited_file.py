"""An open file for a process that is spawned."""

import os
from multiprocessing import reduction
from typing import IO, Any


class InheritedFile:
    """Passes an open file to a process, as an argument of `multiprocessing.Process`.

    The file need not have a name, so that nothing is left of it however the processes end.
    """

    def __init__(self, file: IO[bytes]):
        self._descriptor = file.fileno()

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherit, (reduction.DupFd(self._descriptor),)

    def replace(self, *descriptors: int) -> None:
        """Makes these descriptors, such as those of stdout and stderr, mean the file."""
        for descriptor in descriptors:
            os.dup2(self._descriptor, descriptor)


def _inherit(duplicate: Any) -> InheritedFile:
    inherited = InheritedFile.__new__(InheritedFile)
    inherited._descriptor = duplicate.detach()
    return inherited
