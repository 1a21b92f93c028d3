"""Checkpoints: the last state, from which a run goes on to the same bits, and the best one, which is used afterwards."""

import json
from dataclasses import dataclass
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from jaxcnn.errors import InputError
from jaxcnn.training.history import History
from jaxcnn.training.state import TrainState

_IDENTITY = "identity.json"


@dataclass(frozen=True)
class Restored:
    """What a checkpoint held: the best state is None before the end of the first epoch."""

    state: TrainState
    best: TrainState | None
    history: History


class Checkpoints:
    """A folder with the sub-folders ``last`` and ``best``, written by orbax: to a temporary name, then renamed.

    Args:
      folder: made at the first save; may be a bucket.
      identity: what must be the same for a run to go on (model, data, batch size, …), values that JSON can hold.
    """

    def __init__(self, folder: str | epath.Path, identity: dict[str, Any]):
        self.folder = epath.Path(folder).expanduser().resolve()
        self._identity = json.loads(json.dumps(identity))
        self._managers: dict[str, ocp.CheckpointManager] = {}

    def save(self, state: TrainState, best: TrainState | None, history: History) -> None:
        """Saves both, the best first, so that the history that comes with ``last`` never names a best that is not there.

        Args:
          state, best: as a single device would hold them (`Strategy.fetch`).
          history: saved with ``last``.
        """
        self._write_identity()
        if best is not None and history.best:
            self._save("best", int(history.best["step"]), best)
            self.wait()
        self._save("last", int(state.step), state, history)
        self.wait()

    def restore(self, like: TrainState) -> Restored | None:
        """The last save, or None where there is none.

        Args:
          like: a state of the same structure, shapes and dtypes.

        Raises:
          InputError: the folder belongs to another run, or is damaged.
        """
        if not (self.folder / _IDENTITY).exists():
            return None
        self._check_identity()
        try:
            step = self._manager("last").latest_step()
            if step is None:
                return None
            saved = self._manager("last").restore(step, args=_args(like, restore=True))
            history = History.from_json(saved["history"])
            best = self._restore_best(like, history)
        except Exception as error:  # orbax and tensorstore raise many kinds for a file that is not what it was
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"the checkpoint in {self.folder} is damaged ({reason[:200]}); delete that folder or start anew with --force"
            ) from error
        history.sittings += 1
        return Restored(saved["state"], best, history)

    def wait(self) -> None:
        """Returns when all that was saved is on the disk."""
        for manager in self._managers.values():
            manager.wait_until_finished()

    def close(self) -> None:
        for manager in self._managers.values():
            manager.close()
        self._managers.clear()

    def delete(self) -> None:
        """Removes the folder."""
        self.close()
        if self.folder.exists():
            self.folder.rmtree()

    def _manager(self, name: str) -> ocp.CheckpointManager:
        if name not in self._managers:
            options = ocp.CheckpointManagerOptions(max_to_keep=2 if name == "best" else 1)
            self._managers[name] = ocp.CheckpointManager(self.folder / name, options=options)
        return self._managers[name]

    def _save(self, name: str, step: int, state: TrainState, history: History | None = None) -> None:
        manager = self._manager(name)
        if step not in manager.all_steps():
            manager.save(step, args=_args(state, history), force=True)

    def _restore_best(self, like: TrainState, history: History) -> TrainState | None:
        if history.best is None:
            return None
        return self._manager("best").restore(int(history.best["step"]), args=_args(like, restore=True, history=False))["state"]

    def _write_identity(self) -> None:
        """Once, and whole or not at all."""
        if (self.folder / _IDENTITY).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{_IDENTITY}.tmp"
        temporary.write_text(json.dumps(self._identity, indent=1))
        temporary.replace(self.folder / _IDENTITY)

    def _check_identity(self) -> None:
        try:
            found = json.loads((self.folder / _IDENTITY).read_text())
        except ValueError as error:
            raise InputError(
                f"the checkpoint in {self.folder} is damaged ({_IDENTITY}: {error}); delete that folder or start anew with --force"
            ) from error
        differing = [
            f"{name} {found.get(name)!r} there, {self._identity.get(name)!r} here"
            for name in sorted(found.keys() | self._identity.keys())
            if found.get(name) != self._identity.get(name)
        ]
        if differing:
            raise InputError(
                f"the checkpoint in {self.folder} is of another run: {'; '.join(differing)}. Choose another folder, or start anew with --force"
            )


def _args(state: TrainState, history: Any = None, *, restore: bool = False) -> ocp.args.Composite:
    if not restore:
        extra = {"history": ocp.args.JsonSave(history.to_json())} if history else {}
        return ocp.args.Composite(state=ocp.args.StandardSave(state), **extra)
    extra = {} if history is False else {"history": ocp.args.JsonRestore()}
    return ocp.args.Composite(state=ocp.args.StandardRestore(jax.tree.map(ocp.utils.to_shape_dtype_struct, state)), **extra)
