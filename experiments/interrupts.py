"""Ctrl-C, SIGTERM and SIGHUP, from the first import of a command to its last line.

A command ends at once with exit code 130. While a case is measured, the signal raises
`KeyboardInterrupt` instead, so that temporary folders and child processes are cleaned up; if that
takes too long, because a library has swallowed the exception, the process ends all the same. The
training loop defers the signals to the end of its step (`jaxcnn.training.interrupt`).

Imports nothing but the standard library: it is there before the first import that takes a while.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

BAD_INPUT, INTERRUPTED = 2, 130  # exit codes
MESSAGE = "interrupted; the same command starts again, from the last checkpoint if there is one"
PATIENCE = 5.0  # seconds for cleaning up
_SOON = 0.02  # seconds
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

_patience = PATIENCE  # of the case that is being measured; `request` changes it
_is_requested = False  # whether `request` has interrupted a case
Handler = Callable[[int, FrameType | None], None]


def install() -> None:
    """Makes the signals end this process at once, with exit code 130 and one line on stderr.

    Errors that TensorStore's threads cannot raise are no longer printed.
    """
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end_at_once)
    sys.unraisablehook = _print_unraisable


def _print_unraisable(unraisable: Any) -> None:
    """Prints what Python cannot raise, except for TensorStore's writes after one has failed.

    That one is reported; threads finish the others and find their event loop closed.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def request(patience: float) -> None:
    """Interrupts the case that is being measured, as a signal does; does nothing between cases.

    May be called from any thread.

    Args:
      patience: seconds after which the process ends if the case does not.
    """
    if signal.getsignal(signal.SIGINT) in (_end_at_once, signal.default_int_handler):
        return
    global _patience, _is_requested
    _patience, _is_requested = patience, True
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Makes the first signal raise `KeyboardInterrupt` inside the block, and a second one end it.

    The block ends with `KeyboardInterrupt` also where a library has replaced it by an exception of
    its own, as C++ code does that calls Python, or has dropped it.

    Only the main thread receives signals: in any other thread nothing is changed.
    """
    global _patience
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    previous_hook, finished = sys.unraisablehook, threading.Event()
    arrived = threading.Event()
    _patience = PATIENCE

    def interrupt(number: int, frame: FrameType | None) -> None:
        arrived.set()
        for each in previous:
            signal.signal(each, _end_at_once)
        threading.Thread(target=_end_unless, args=(finished,), daemon=True).start()
        raise KeyboardInterrupt

    def interrupt_again(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def hook(unraisable: Any) -> None:
        """Repeats an interrupt that came inside a callback, where Python drops exceptions."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous_hook(unraisable)
        elif not finished.is_set():
            signal.signal(signal.SIGINT, interrupt_again)
            main = threading.main_thread().ident
            threading.Timer(_SOON, signal.pthread_kill, (main, signal.SIGINT)).start()

    sys.unraisablehook = hook
    for number, handler in previous.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
        if arrived.is_set():
            raise KeyboardInterrupt
    except Exception as error:
        if arrived.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        finished.set()
        sys.unraisablehook = previous_hook
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_with(code: int) -> NoReturn:
    """Ends the process; after an interruption or an error without libraries' clean-up.

    The clean-up may crash, as threads may still compile a program for a case that was interrupted,
    or print what threads of TensorStore had left to do. While it runs the signals are ignored: the
    command is complete, and Python gives up its handlers meanwhile.
    """
    joined = sys.modules.get("jaxcnn.distributed")  # several processes have to take leave
    if joined and joined.is_distributed():
        sys.exit(code)
    if code not in (BAD_INPUT, INTERRUPTED) and not _is_requested:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _end_unless(finished: threading.Event) -> None:
    if not finished.wait(_patience):
        _end_at_once(signal.SIGINT, None)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    _kill_children()
    with contextlib.suppress(OSError):
        os.write(2, f"\n{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def _kill_children() -> None:
    """Kills the processes that this one has started, where they are known already."""
    psutil = sys.modules.get("psutil")  # nothing has been started before it is imported
    if psutil is None:
        return
    with contextlib.suppress(Exception):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
