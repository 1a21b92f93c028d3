"""Reads the weights of a `jaxcnn.training` checkpoint without knowing its network."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from jaxcnn.errors import InputError, first_line
from jaxcnn.weights import digests
from jaxcnn.weights.assign import Weights

_IDENTITY = "identity.json"
# Fields of `jaxcnn.training.TrainState`; before version 0.2 `ema_params` was called `average`.
_FIELDS = ("params", "frozen", "ema_params", "average", "model_state")


def read_checkpoint(folder: epath.PathLike) -> Weights:
    """Reads the weights that evaluation uses.

    These are the best weights, or the last ones if no best weights were saved. Averaged parameters
    replace the parameters. Streams of random numbers are left out.

    Args:
      folder: of the checkpoint; it has the sub-folders ``last`` and ``best``.

    Raises:
      InputError: the folder is not a checkpoint, or is damaged.
    """
    read_identity(folder)
    path = _state_folder(epath.Path(folder).expanduser().resolve())
    name, step = path.parts[-3:-1]
    try:
        digests.verify(path.parents[2], name, int(step))
        state = _read_state(path)
    except Exception as error:  # orbax and tensorstore raise many kinds for a damaged file
        raise _damaged(folder, error) from error
    parameters = _flatten(state.get("params", {}))
    for name in ("ema_params", "average"):
        parameters |= _flatten(state.get(name, {}))
    if not parameters:
        raise InputError(f"the checkpoint in {folder} contains no weights")
    return parameters | _flatten(state.get("frozen", {})) | _flatten(state.get("model_state", {}))


def read_identity(folder: epath.PathLike) -> dict[str, Any]:
    """Reads the identity of a checkpoint's run: its model, data, batch size and other settings.

    Raises:
      InputError: the folder is not a checkpoint, or is damaged.
    """
    path = epath.Path(folder).expanduser() / _IDENTITY
    if not path.exists():
        raise InputError(
            f"{folder} is not a checkpoint: it has no {_IDENTITY}; give the folder that contains "
            "this file and the sub-folders last and best"
        )
    try:
        identity = json.loads(path.read_text())
    except ValueError as error:
        raise _damaged(folder, error) from error
    if not isinstance(identity, dict):
        raise _damaged(folder, ValueError(f"{_IDENTITY} is not a JSON object"))
    return identity


def _state_folder(folder: epath.Path) -> epath.Path:
    """The folder of the newest best state, or of the newest last state."""
    for name in ("best", "last"):
        saves = (folder / name).iterdir() if (folder / name).is_dir() else ()
        saves = [path for path in saves if path.name.isdigit()]
        if saves:
            return max(saves, key=lambda path: int(path.name)) / "state"
    raise InputError(f"the checkpoint in {folder} is empty: neither best nor last has been saved")


def _read_state(folder: epath.Path) -> dict[str, Any]:
    """The weights of a state as NumPy arrays, so that the devices it was saved on do not matter."""
    handler = ocp.PyTreeCheckpointHandler()
    saved = handler.metadata(folder).tree
    target = _without_streams({name: saved[name] for name in _FIELDS if name in saved})
    restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), target)
    return handler.restore(
        folder,
        args=ocp.args.PyTreeRestore(target, restore_args=restore_args, partial_restore=True),
    )


def _without_streams(tree: Any) -> Any:
    """The tree without the streams of random numbers (`nnx.RngStream`) and empty branches."""
    if not isinstance(tree, dict):
        return tree
    children = {
        name: _without_streams(child) for name, child in tree.items() if not _is_stream(child)
    }
    return {name: child for name, child in children.items() if child}


def _is_stream(tree: Any) -> bool:
    """Whether this is a key and the number of its uses, neither of them a floating-point number."""
    return (
        isinstance(tree, dict)
        and tree.keys() == {"key", "count"}
        and not any(isinstance(leaf, dict) or _is_floating(leaf) for leaf in tree.values())
    )


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _flatten(tree: dict[str, Any], prefix: str = "") -> Weights:
    weights: Weights = {}
    for name, child in tree.items():
        if isinstance(child, dict):
            weights |= _flatten(child, f"{prefix}{name}.")
        else:
            weights[f"{prefix}{name}"] = child
    return weights


def _damaged(folder: epath.PathLike, error: Exception) -> InputError:
    return InputError(f"the checkpoint in {folder} is damaged ({first_line(error)[:200]})")
