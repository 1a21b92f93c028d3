"""How far each process has come, so that one that is late can be named."""

import jax
from jax._src import distributed

_PREFIX = "jaxcnn/step/"


def announce_step(step: int) -> None:
    """Tells the other processes that this one begins a dispatch after `step` steps."""
    if jax.distributed.is_initialized():
        client = distributed.global_state.client
        client.key_value_set(f"{_PREFIX}{jax.process_index()}", str(step), allow_overwrite=True)


def announced_steps() -> dict[int, int]:
    """The step that each process announced last, by its index; empty for a single process."""
    if not jax.distributed.is_initialized():
        return {}
    entries = distributed.global_state.client.key_value_dir_get(_PREFIX)
    return {int(key.rpartition("/")[2]): int(value) for key, value in sorted(entries)}
