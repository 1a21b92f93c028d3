"""The file that carries a task to the processes of the libraries: numbers and text alone."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np

from experiments.peers.layers import Layer
from experiments.peers.task import Task

_WEIGHT, _ARRAYS, _REST, _TYPE = "weight:", ("images", "labels"), "task", "type"
_LAYERS = {kind.__name__: kind for kind in get_args(Layer)}


def save(task: Task, path: Path) -> None:
    """Writes an ``.npz`` file: arrays, and everything else as JSON."""
    arrays = {f"{_WEIGHT}{name}": array for name, array in task.weights.items()}
    arrays |= {name: getattr(task, name) for name in _ARRAYS}
    rest = {
        field.name: _encode(getattr(task, field.name))
        for field in dataclasses.fields(task)
        if field.name not in (*_ARRAYS, "weights")
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays, **{_REST: np.array(json.dumps(rest))})


def load(path: Path) -> Task:
    """Reads the file.

    Raises:
      ValueError: it is not such a file.
    """
    with np.load(path, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    try:
        rest = json.loads(str(arrays.pop(_REST)))
        fields: dict[str, Any] = {name: _decode(value) for name, value in rest.items()}
        fields |= {name: arrays.pop(name) for name in _ARRAYS}
        weights = {name.removeprefix(_WEIGHT): array for name, array in arrays.items()}
        return Task(weights=weights, **fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has no task ({error})") from error


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {_TYPE: type(value).__name__} | fields
    return [_encode(item) for item in value] if isinstance(value, tuple | list) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        kind = _LAYERS[value[_TYPE]]
        return kind(**{name: _decode(item) for name, item in value.items() if name != _TYPE})
    return tuple(_decode(item) for item in value) if isinstance(value, list) else value
