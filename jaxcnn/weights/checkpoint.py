"""The weights in a folder that `jaxcnn.training.Checkpoints` wrote, without knowing the network."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Weights

_IDENTITY = "identity.json"
_PARTS = ("params", "frozen", "average", "model_state")  # fields of `jaxcnn.training.TrainState`


def weights_of(folder: epath.PathLike) -> Weights:
    """The best weights of a checkpoint, the last where there is no best: those that evaluation uses.

    A moving average of parameters stands for the parameters; random keys and counters are left out.

    Raises:
      InputError: the folder is no checkpoint, or is damaged.
    """
    identity_of(folder)
    path = _newest(epath.Path(folder).expanduser().resolve())
    try:
        state = _read(path)
    except (
        Exception
    ) as error:  # orbax and tensorstore raise many kinds for a file that is not what it was
        raise _damaged(folder, error) from error
    parameters = _flat(state.get("params", {})) | _flat(state.get("average", {}))
    weights = parameters | _flat(state.get("frozen", {})) | _flat(state.get("model_state", {}))
    if not parameters:
        raise InputError(f"the checkpoint in {folder} holds no weights")
    return weights


def identity_of(folder: epath.PathLike) -> dict[str, Any]:
    """What a checkpoint says of its run: model, data, and whatever else it was given.

    Raises:
      InputError: the folder is no checkpoint, or is damaged.
    """
    path = epath.Path(folder).expanduser() / _IDENTITY
    if not path.exists():
        raise InputError(
            f"{folder} is no checkpoint: it has no {_IDENTITY}; give the folder that holds it, with the sub-folders last and best"
        )
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise _damaged(folder, error) from error
    if not isinstance(found, dict):
        raise _damaged(folder, ValueError(f"{_IDENTITY} holds no table"))
    return found


def _newest(folder: epath.Path) -> epath.Path:
    for name in ("best", "last"):
        steps = (
            [path for path in (folder / name).iterdir() if path.name.isdigit()]
            if (folder / name).is_dir()
            else []
        )
        if steps:
            return max(steps, key=lambda path: int(path.name)) / "state"
    raise InputError(f"the checkpoint in {folder} is empty: neither best nor last has been saved")


def _read(path: epath.Path) -> dict[str, Any]:
    """The state's weights as NumPy arrays, on no device: a checkpoint of eight devices can be read on one."""
    reader = ocp.PyTreeCheckpointHandler()
    tree = reader.metadata(path).tree
    wanted = _without_random({part: tree[part] for part in _PARTS if part in tree})
    how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
    return reader.restore(
        path, args=ocp.args.PyTreeRestore(wanted, restore_args=how, partial_restore=True)
    )


def _without_random(tree: Any) -> Any:
    """Without keys and counters, the only leaves that hold integers, and without branches that are then empty."""
    if not isinstance(tree, dict):
        return tree if jnp.issubdtype(tree.dtype, jnp.floating) else None
    kept = {name: _without_random(child) for name, child in tree.items()}
    return {name: child for name, child in kept.items() if child}


def _flat(tree: dict[str, Any], prefix: str = "") -> Weights:
    weights = {}
    for name, child in tree.items():
        weights |= (
            _flat(child, f"{prefix}{name}.")
            if isinstance(child, dict)
            else {f"{prefix}{name}": child}
        )
    return weights


def _damaged(folder: epath.PathLike, error: Exception) -> InputError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(f"the checkpoint in {folder} is damaged ({reason[:200]})")
