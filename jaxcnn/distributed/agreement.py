"""What processes tell each other: values, decisions and errors.

Without `jax.distributed`, each function is that of a single process and costs nothing. Values are
JSON and go through the coordination service of JAX, which waits as long as it takes; decisions in
the training loop are sums over the devices, which are quick.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from jaxcnn.errors import InputError

_WAIT = 7 * 24 * 3600 * 1000  # ms; a process that has died ends the others long before
Value = TypeVar("Value")


def is_distributed() -> bool:
    """Whether this process is one of several."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_main() -> bool:
    """Whether this is process 0, which writes records and prints; True for a single process."""
    return not is_distributed() or jax.process_index() == 0


def process_name() -> str:
    """The name of this process for messages, such as ``process 1 of 2 on node2``."""
    return f"process {jax.process_index()} of {jax.process_count()} on {socket.gethostname()}"


def exchange(topic: str, value: Any) -> list[Any]:
    """The values of all processes, by index.

    Args:
      topic: what the values are; every process uses a topic once.
      value: JSON.

    >>> exchange("colour", "blue")
    ['blue']
    """
    if not is_distributed():
        return [value]
    client = _client()
    client.key_value_set(f"jaxcnn/{topic}/{jax.process_index()}", json.dumps(value))
    texts = [
        client.blocking_key_value_get(f"jaxcnn/{topic}/{index}", _WAIT)
        for index in range(jax.process_count())
    ]
    return [json.loads(text) for text in texts]


def of_main(
    topic: str,
    function: Callable[[], Value],
    *,
    encode: Callable[[Value], Any] = lambda value: value,
    decode: Callable[[Any], Value] = lambda value: value,
) -> Value:
    """Calls a function in process 0 alone and returns its result in every process.

    Args:
      topic: as for `exchange`.
      function: returns what `encode` turns into JSON and `decode` back.

    Raises:
      InputError: in every process, if the function raises it.

    >>> of_main("answer", lambda: 42)
    42
    """
    if not is_distributed():
        return function()
    client, key = _client(), f"jaxcnn/{topic}"
    if is_main():
        try:
            answer: dict[str, Any] = {"value": encode(function())}
        except InputError as error:
            answer = {"error": str(error)}
        client.key_value_set(key, json.dumps(answer))
    answer = json.loads(client.blocking_key_value_get(key, _WAIT))
    if "error" in answer:
        raise InputError(answer["error"])
    return decode(answer["value"])


@contextlib.contextmanager
def all_or_none(topic: str) -> Iterator[None]:
    """An `InputError` inside the block, in any process, is one in all of them.

    Args:
      topic: as for `exchange`.
    """
    error: InputError | None = None
    try:
        yield
    except InputError as raised:
        error = raised
    problems = exchange(topic, str(error) if error else "")
    if error is not None:
        raise error
    for index, problem in enumerate(problems):
        if problem:
            raise InputError(f"process {index}: {problem}")


def require_equal(topic: str, value: Any) -> None:
    """Checks that a value, JSON, is the same in every process.

    Raises:
      InputError: in every process, with the first value that differs from that of process 0.
    """
    first, *others = exchange(topic, value)
    for index, other in enumerate(others, 1):
        if other != first:
            raise InputError(
                f"{topic} differ: {json.dumps(first)} in process 0 and {json.dumps(other)} in "
                f"process {index}: give all processes the same files, options and kind of machine"
            )


def maximum(values: Sequence[int]) -> tuple[int, ...]:
    """The largest of each value over all processes; a collective operation of all devices.

    >>> maximum((3, 0))
    (3, 0)
    """
    if not is_distributed():
        return tuple(values)
    from jax.experimental import multihost_utils

    gathered = multihost_utils.process_allgather(np.asarray(values, np.int32))
    return tuple(gathered.max(axis=0).tolist())


def wait_for_all() -> None:
    """Waits until every process has come here; a collective operation of all devices."""
    maximum((0,))


def _client() -> Any:
    from jax._src import distributed

    return distributed.global_state.client
