"""What a training run continues: its own checkpoint, another run's, or a new state."""

from typing import Any

from etils import epath

from experiments.workloads.setup import TrainingSetup
from jaxcnn import models, training
from jaxcnn.errors import InputError
from jaxcnn.training.checkpoint import MODEL_SOURCE, Restored
from jaxcnn.training.history import History

# Settings that a run continued by --resume-from may change.
PLACEMENT_SETTINGS = ("strategy", "mesh", "resume_from")


def open_checkpoints(
    folder: epath.Path, settings: dict[str, Any], setup: TrainingSetup
) -> training.Checkpoints:
    """The checkpoints of a run.

    Args:
      folder: of the checkpoints.
      settings: of the case, as JSON.
      setup: of the run.
    """
    identity = settings | {"inputs": setup.preprocessing.to_json()}
    if models.is_user_model(setup.config.model):
        identity |= {MODEL_SOURCE: setup.config.model}
    return training.Checkpoints(folder, identity)


def restore(
    checkpoints: training.Checkpoints, settings: dict[str, Any], setup: TrainingSetup
) -> Restored:
    """The state to continue from; with ``--force`` the old checkpoints are deleted first.

    Raises:
      InputError: a checkpoint of another run, or none in the folder of ``--resume-from``.
    """
    config, like = setup.config, setup.strategy.abstract_saved(setup.state)
    if config.force:
        checkpoints.delete()
    restored = checkpoints.restore(like)
    if restored is None and config.resume_from:
        other = open_checkpoints(epath.Path(config.resume_from), settings, setup)
        restored = other.restore(like, ignored=PLACEMENT_SETTINGS)
        other.close()
        if restored is None:
            raise InputError(
                f"--resume-from={config.resume_from}: there is no checkpoint; give the folder "
                "results/train/CASE.checkpoints of a run that was stopped"
            )
        restored.history.foreign_sessions = restored.history.sessions - 1
    return restored or Restored(setup.state, None, History())
