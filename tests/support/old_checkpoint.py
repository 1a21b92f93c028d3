"""A checkpoint as the library before version 0.2 wrote it, when some fields had other names."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
from jax import Array

from jaxcnn import training
from jaxcnn.training.history import History


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class OldTrainState:
    """`TrainState` with its old names: `average` for `ema_params`, `rate` for `lr_scale`."""

    step: Array
    params: Any
    frozen: Any
    average: Any
    model_state: Any
    opt_state: Any
    key: Array
    rate: Array
    loss_scale: Array
    finite_steps: Array


class OldHistory(History):
    """`History` with its old names in JSON: sittings for sessions, open for epoch_totals."""

    def to_json(self) -> dict[str, Any]:
        values = super().to_json()
        return values | {"sittings": values.pop("sessions"), "open": values.pop("epoch_totals")}


def old_state(state: training.TrainState) -> OldTrainState:
    """The same state on the host, with the old field names."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return jax.device_get(
        OldTrainState(average=fields.pop("ema_params"), rate=fields.pop("lr_scale"), **fields)
    )


def save_old_checkpoint(
    folder: Path,
    identity: dict[str, Any],
    state: training.TrainState,
    best: training.TrainState,
    history: History,
) -> None:
    """Writes a checkpoint in which states and history have their old names."""
    checkpoints = training.Checkpoints(folder, identity)
    checkpoints.save(old_state(state), old_state(best), OldHistory(**history.to_json()))
    checkpoints.close()
