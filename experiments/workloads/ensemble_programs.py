"""Compiled programs that train many networks: all at once, and one after the other."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from experiments.measure.timing import compile_program
from experiments.workloads import equivalence
from experiments.workloads.ensembles import Member
from experiments.workloads.setup import TrainingSetup
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.data.scheduled import ScheduledFeed
from jaxcnn.parallel.members import Members

# As `in_axes` of `jax.vmap`: the members share the images, and each has an order of its own.
DATA_AXES = {"image": None, "label": None, "rows": 0}

Trained = tuple[training.TrainState, dict[str, jax.Array]]  # the state and the metrics of each step


@dataclass(frozen=True)
class EnsemblePrograms:
    """The program for all members, the program for one, and what they run on.

    Attributes:
      mapping: of a function of one member over all members.
      all_members: compiled ``(stacked_state, stacked_data, steps)``.
      one_member: compiled ``(state, data, steps)``.
      stacked_state, stacked_data: placed on the devices of the mapping.
      states, data: of each member, on the first device.
      compile_metrics: how long compiling `all_members` took.
    """

    mapping: Members
    all_members: jax.stages.Compiled
    one_member: jax.stages.Compiled
    stacked_state: training.TrainState
    stacked_data: dict[str, Any]
    states: list[training.TrainState]
    data: list[dict[str, Any]]
    compile_metrics: dict[str, float]

    def train_at_once(self, steps: int) -> Trained:
        """Trains all members in one dispatch; the results have a leading axis of members."""
        placed_steps = self.mapping.place_data(np.int32(steps))
        return self.all_members(self.stacked_state, self.stacked_data, placed_steps)

    def train_one_by_one(self, steps: int) -> list[Trained]:
        """Trains one member after the other, with a dispatch each."""
        placed_steps = jax.device_put(np.int32(steps), self.mapping.devices[0])
        return [
            self.one_member(state, data, placed_steps)
            for state, data in zip(self.states, self.data, strict=True)
        ]


def compile_programs(
    setup: TrainingSetup,
    members: list[Member],
    images: dict[str, np.ndarray],
    backend: Backend,
    steps: int,
) -> EnsemblePrograms:
    """Places the members and compiles both programs.

    Args:
      setup: the training run that the members are variants of.
      members: as `ensembles.build_members` returned them.
      images: as `ensembles.all_images` returned them.
      backend: `EnsemblePrograms.all_members` uses as many of its devices as divide the members
        evenly, `EnsemblePrograms.one_member` the first.
      steps: the number of rows of each member.
    """
    mapping, device = Members(len(members), backend.devices), backend.devices[0]
    run_steps = training.multi_step(setup.step, ScheduledFeed(steps))
    rows = np.stack([member.rows for member in members])
    stacked_data = mapping.place_data(images | {"rows": rows}, DATA_AXES)
    shared = jax.device_put(images, device)
    data = [shared | {"rows": jax.device_put(member.rows, device)} for member in members]
    stacked_state = mapping.place([member.state for member in members])
    states = [jax.device_put(member.state, device) for member in members]
    mapped = mapping.compile(run_steps, (0, DATA_AXES, None))
    all_members = compile_program(mapped, stacked_state, stacked_data, np.int32(1))
    single = jax.jit(run_steps, compiler_options=setup.strategy.options or None)
    return EnsemblePrograms(
        mapping=mapping,
        all_members=all_members.executable,
        one_member=compile_program(single, states[0], data[0], np.int32(1)).executable,
        stacked_state=stacked_state,
        stacked_data=stacked_data,
        states=states,
        data=data,
        compile_metrics=all_members.metrics,
    )


def compare_programs(programs: EnsemblePrograms, at_once: Trained, steps: int) -> dict[str, float]:
    """Trains the members one by one and compares them with the members trained at once.

    Args:
      programs: as `compile_programs` returned them.
      at_once: the result of `EnsemblePrograms.train_at_once` after the same number of steps.
      steps: the number of steps.

    Returns:
      Metrics by the names of `METRICS`.
    """
    state, metrics = at_once
    one_by_one = jax.device_get(programs.train_one_by_one(steps))
    params = [single_state.params for single_state, _ in one_by_one]
    losses = np.stack([single["loss"][:steps] for _, single in one_by_one])
    return {
        "largest_parameter_difference": equivalence.largest_difference(
            programs.mapping.fetch(state.params), params
        ),
        "largest_loss_difference": equivalence.largest_difference(
            np.asarray(metrics["loss"])[:, :steps], losses
        ),
    }


def evaluate_members(
    programs: EnsemblePrograms,
    setup: TrainingSetup,
    state: training.TrainState,
    members: list[Member],
    labels: np.ndarray,
) -> tuple[list[float], float]:
    """Accuracies on the held-out images.

    Args:
      programs: as `compile_programs` returned them.
      setup: the training run that the members are variants of.
      state: of all members, trained.
      members: tell which images are held out.
      labels: of all images, ``i32[N]``.

    Returns:
      The accuracy of each member on the images held out from it; and the accuracy of the members'
      mean probabilities on the images held out from the first, which is meaningful if all members
      hold out the same images.
    """
    rows = np.stack([member.held_out for member in members])
    probabilities = _probabilities(programs, setup, state, rows)
    accuracies = np.mean(np.argmax(probabilities, axis=-1) == labels[rows], axis=1)
    mean_probabilities = np.mean(probabilities, axis=0)
    ensemble = np.mean(np.argmax(mean_probabilities, axis=-1) == labels[rows[0]])
    return accuracies.tolist(), float(ensemble)


def _probabilities(
    programs: EnsemblePrograms, setup: TrainingSetup, state: training.TrainState, rows: np.ndarray
) -> np.ndarray:
    """Class probabilities ``f32[members, M, classes]`` of the images ``rows: i32[members, M]``."""

    def probabilities(state, data, rows):
        logits = setup.step.evaluation.outputs(state, data["image"][rows])
        return jax.nn.softmax(
            training.class_logits(logits[0] if isinstance(logits, tuple) else logits)
        )

    mapping, batch_size = programs.mapping, setup.config.batch_size
    program = mapping.compile(probabilities, (0, DATA_AXES, 0))
    padding = np.repeat(rows[:, -1:], -rows.shape[1] % batch_size, axis=1)
    padded = np.concatenate([rows, padding], axis=1)
    batches = [
        np.asarray(program(state, programs.stacked_data, mapping.place_data(batch, 0)))
        for batch in np.split(padded, padded.shape[1] // batch_size, axis=1)
    ]
    return np.concatenate(batches, axis=1)[:, : rows.shape[1]]
