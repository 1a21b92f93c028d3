"""How far each process has come, so that one that is late can be named."""

import jax
from jax._src import distributed

_STEP = "jaxcnn/step/"
_WAITING = "jaxcnn/waiting/"


def announce_step(step: int) -> None:
    """Tells the other processes that this one begins a dispatch after `step` steps."""
    _announce(_STEP, step)


def announce_waiting(step: int) -> None:
    """Tells them that this one waits too long for the dispatch after `step` steps."""
    _announce(_WAITING, step)


def announced_steps() -> dict[int, int]:
    """The step of the last dispatch that each process began, by its index."""
    return _read(_STEP)


def announced_waiting() -> dict[int, int]:
    """The step of the dispatch that processes wait for too long, by their index."""
    return _read(_WAITING)


def _announce(prefix: str, step: int) -> None:
    if jax.distributed.is_initialized():
        client = distributed.global_state.client
        client.key_value_set(f"{prefix}{jax.process_index()}", str(step), allow_overwrite=True)


def _read(prefix: str) -> dict[int, int]:
    """The steps by process; empty for a single process."""
    if not jax.distributed.is_initialized():
        return {}
    entries = distributed.global_state.client.key_value_dir_get(prefix)
    return {int(key.rpartition("/")[2]): int(value) for key, value in sorted(entries)}
