"""Starts child processes that do not import the user's own script again."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Processes that `multiprocessing` spawns in this context do not run the main script.

    By default each of them imports it, and a script without ``if __name__ == "__main__"`` would
    start over, or start JAX before the process has configured it.
    """
    main = sys.modules["__main__"]
    names = ("__spec__", "__file__")
    saved = {name: getattr(main, name) for name in names if hasattr(main, name)}
    for name in saved:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(main, name, value)
