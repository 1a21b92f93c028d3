"""Checkpoints: the last state, to resume from bit for bit, and the best one, to use afterwards."""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from jaxcnn import distributed
from jaxcnn.errors import InputError, first_line
from jaxcnn.training.history import History
from jaxcnn.training.saved_arrays import first_difference
from jaxcnn.training.state import TrainState
from jaxcnn.weights import digests

_IDENTITY = "identity.json"
# In the identity of a user's own model: where it was. Not compared, as a run may move to another
# machine.
MODEL_SOURCE = "model_source"
_OLD_NAMES = {"ema_params": "average", "lr_scale": "rate"}  # fields of `TrainState` before 0.2


@dataclass(frozen=True)
class Restored:
    """What a checkpoint contains; `best` is None before the end of the first epoch."""

    state: TrainState
    best: TrainState | None
    history: History


class Checkpoints:
    """A folder with the sub-folders ``last`` and ``best``, written by Orbax.

    Orbax writes to a temporary name and renames, so that a save is complete or absent. With several
    processes, all call each method, the folder is one that all of them see, and each writes the
    parts of the arrays that its devices hold.

    It is a context manager, which closes it at the end.

    Args:
      folder: created at the first save; may be a bucket.
      identity: what must be the same for a run to resume (model, data, batch size, …), as JSON.
    """

    def __init__(self, folder: str | epath.Path, identity: dict[str, Any]):
        self.folder = epath.Path(folder).expanduser().resolve()
        self._identity = json.loads(json.dumps(identity))
        self._managers: dict[str, ocp.CheckpointManager] = {}
        self._is_begun = False  # by this object: it has restored or saved a state

    def save(self, state: TrainState, best: TrainState | None, history: History) -> None:
        """Saves both states, the best one first.

        The history saved with ``last`` therefore never names a best state that is missing.

        Args:
          state, best: as `Strategy.to_save` returns them.
          history: saved with ``last``.

        Raises:
          InputError: the folder has states that were not restored, or they cannot be written, as on
            a full disk; what was saved before is intact.
        """
        self._require_own_folder()
        try:
            with _quiet_orbax():
                self._write_identity()
                if best is not None and history.best:
                    self._save("best", int(history.best["step"]), best)
                self._save("last", int(state.step), state, history)
        except Exception as error:  # orbax and tensorstore raise many kinds
            raise InputError(
                f"the checkpoint in {self.folder} cannot be written ({_reason(error)}); make room "
                "or choose another folder: the same command goes on from the last save"
            ) from error

    def restore(self, like: TrainState, ignored: Collection[str] = ()) -> Restored | None:
        """Restores the last save, or returns None if there is none.

        Args:
          like: a state of the same structure, shapes and dtypes; where its arrays have shardings,
            as those of `Strategy.abstract_saved`, the restored arrays get them.
          ignored: names in the identity that may differ.

        Raises:
          InputError: the folder belongs to another run, its arrays are not those of `like`, or it
            is damaged.
        """
        exists, has_saves = distributed.maximum(
            (int((self.folder / _IDENTITY).exists()), int((self.folder / "last").exists()))
        )
        if not exists:
            if has_saves:
                raise self._damaged(f"it has no {_IDENTITY}")
            return None
        self._check_identity(ignored)
        self._is_begun = True
        try:
            step = self._manager("last").latest_step()
            if step is None:
                return None
            state, saved_history = self._restore("last", step, like)
            history = History.from_json(saved_history, step)
            best = None
            if history.best is not None:
                best, _ = self._restore("best", int(history.best["step"]), like)
        except InputError:
            raise
        except Exception as error:  # orbax and tensorstore raise many kinds for a damaged file
            raise self._damaged(_reason(error)) from error
        history.sessions += 1
        return Restored(state, best, history)

    def wait(self) -> None:
        """Blocks until everything saved is on the disk."""
        for manager in self._managers.values():
            manager.wait_until_finished()

    def close(self) -> None:
        """Waits for what is being written and releases Orbax's threads."""
        for manager in self._managers.values():
            manager.close()
        self._managers.clear()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def delete(self) -> None:
        """Removes the folder."""
        self.close()
        if distributed.is_main() and self.folder.exists():
            self.folder.rmtree()
        distributed.wait_for_all()

    def _manager(self, name: str) -> ocp.CheckpointManager:
        if name not in self._managers:
            options = ocp.CheckpointManagerOptions(max_to_keep=2 if name == "best" else 1)
            self._managers[name] = ocp.CheckpointManager(self.folder / name, options=options)
        return self._managers[name]

    def _save(
        self, name: str, step: int, state: TrainState, history: History | None = None
    ) -> None:
        manager = self._manager(name)
        if step in manager.all_steps():
            return
        parts: dict[str, Any] = {"state": ocp.args.StandardSave(state)}
        if history:
            parts["history"] = ocp.args.JsonSave(history.to_json())
        manager.save(step, args=ocp.args.Composite(**parts), force=True)
        self.wait()
        if distributed.is_main():
            digests.write(self.folder, name, step)

    def _restore(self, name: str, step: int, like: TrainState) -> tuple[TrainState, Any]:
        """The state and, from ``last``, the history as JSON."""
        digests.verify(self.folder, name, step)
        folder = self.folder / name / str(step)
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        tree = ocp.PyTreeCheckpointHandler().metadata(folder / "state").tree
        names = _saved_names(tree)
        target = {names[field]: getattr(shapes, field) for field in names}
        parts: dict[str, Any] = {"state": ocp.args.StandardRestore(target)}
        if name == "last":
            parts["history"] = ocp.args.JsonRestore()
        try:
            saved = self._manager(name).restore(step, args=ocp.args.Composite(**parts))
        except ValueError as error:
            if difference := first_difference(tree, target):
                raise InputError(
                    f"the checkpoint in {self.folder} is of a run with another optimizer or model: "
                    f"{difference}. Resume with those of that run, or choose another folder"
                ) from error
            raise
        state = TrainState(**{field: saved["state"][names[field]] for field in names})
        return state, saved.get("history")

    def _require_own_folder(self) -> None:
        """Rejects the folder of another run, and one whose states were not restored.

        Their steps would be kept in place of those of this run.
        """
        if self._is_begun:
            return
        has_identity, has_saves = distributed.maximum(
            (int((self.folder / _IDENTITY).exists()), int((self.folder / "last").exists()))
        )
        if has_identity:
            self._check_identity(())
        if has_saves and self._manager("last").latest_step() is not None:
            raise InputError(
                f"the checkpoint in {self.folder} was not restored: call restore() first to go on "
                "from it, delete() to start anew, or choose another folder"
            )
        self._is_begun = True

    def _write_identity(self) -> None:
        if not distributed.is_main() or (self.folder / _IDENTITY).exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{_IDENTITY}.tmp"
        temporary.write_text(json.dumps(self._identity, indent=1))
        temporary.replace(self.folder / _IDENTITY)

    def _check_identity(self, ignored: Collection[str]) -> None:
        try:
            saved = json.loads((self.folder / _IDENTITY).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(f"{_IDENTITY}: {_reason(error)}") from error
        if not isinstance(saved, dict):
            raise self._damaged(f"{_IDENTITY} is not a JSON object")
        differences = [
            f"{name} {saved.get(name)!r} there, {self._identity.get(name)!r} here"
            for name in sorted((saved.keys() | self._identity.keys()) - {MODEL_SOURCE, *ignored})
            if saved.get(name) != self._identity.get(name)
        ]
        if differences:
            raise InputError(
                f"the checkpoint in {self.folder} is of another run: {'; '.join(differences)}. "
                "Choose another folder, or delete that one to start anew (--force does)"
            )

    def _damaged(self, reason: str) -> InputError:
        return InputError(
            f"the checkpoint in {self.folder} is damaged ({reason}); "
            "delete that folder to start anew (--force does)"
        )


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Keeps Orbax from logging the tracebacks of its threads, whose errors are raised as well.

    After an error the level stays raised: the threads of a failed write log when they end.
    """
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def _reason(error: Exception) -> str:
    """The first line of an error, not too long."""
    return first_line(error)[:200]


def _saved_names(tree: dict[str, Any]) -> dict[str, str]:
    """Each field of `TrainState` and the name under which a saved state has it."""
    fields = [field.name for field in dataclasses.fields(TrainState)]
    is_old = "lr_scale" not in tree
    return {field: _OLD_NAMES.get(field, field) if is_old else field for field in fields}
