"""Training parallelism (E6): an ensemble, a cross-validation, a grid of learning rates trained at once, against one by one."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import model_flops
from experiments.measure.memory import planned
from experiments.measure.timing import Timing, compare, compiled, interleaved
from experiments.studies import train
from experiments.studies.strategies import NO_SPEEDS
from experiments.workloads import equivalence
from experiments.workloads.ensembles import Member, members
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import models, training
from jaxcnn.backend import Backend
from jaxcnn.data import as_arrays
from jaxcnn.data.scheduled import ScheduledFeed
from jaxcnn.errors import InputError
from jaxcnn.parallel.members import Members

CASES = {
    "quick": (("seeds", 8), ("folds", 8), ("rates", 8)),  # one program for all three
    "full": (
        ("seeds", 2),
        ("seeds", 8),
        ("seeds", 32),
        ("folds", 5),
        ("folds", 10),
        ("rates", 8),
        ("rates", 32),
    ),
}
ROUNDS = {"quick": 7, "full": 15}
TIMED = {"quick": 1, "full": 20}  # steps of each member in a round, all in one dispatch
WARM_UP = {"quick": 0.1, "full": 1.0}  # seconds
STEPS = 16  # after which the two ways are compared; the quick preset trains for no more
COLUMNS = (
    "members", "step_time", "one_by_one_time", "speed_up", "memory_planned", "largest_parameter_difference", "mean_accuracy",
    "accuracy_spread", "ensemble_accuracy", "best_learning_rate",
)  # fmt: skip
_OWN = {
    "image": None,
    "label": None,
    "rows": 0,
}  # the images are shared, the order is each member's own


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """An ensemble, folds and a grid, by the recipe's first stage; the quick preset trains for some steps of it.

    Raises:
      InputError: as of `train.cases`, or weights to start from, which members of an ensemble do not share.
    """
    if config.init_from:
        raise InputError(
            "--init-from: the members of an ensemble start from weights of their own; leave it out"
        )
    config = config.with_defaults({"epochs": 1} if config.preset == "quick" else {})
    (base,) = train.cases(config.replace(strategy="jit"), backend)
    return [_case(base, kind, count) for kind, count in CASES[config.preset]]


def _case(base: Case, kind: str, count: int) -> Case:
    settings = base.settings | {"point": f"{count} {kind}", "kind": kind, "members": count}
    settings |= {"most_steps": STEPS if base.config.preset == "quick" else None}
    return Case(base.config, settings, (*base.parts, kind, f"x{count}"), base.data)


@dataclass(frozen=True)
class _Programs:
    """The run of all members in one program, and that of each: both take a number of steps."""

    over: Members
    together: Any
    single: Any
    state: training.TrainState
    states: list[training.TrainState]
    data: dict[str, Any]
    each: list[dict[str, Any]]
    compile_metrics: dict[str, float]

    def at_once(self, steps: int) -> Any:
        return self.together(self.state, self.data, np.int32(steps))

    def one_by_one(self, steps: int) -> list[Any]:
        return [
            self.single(state, data, np.int32(steps))
            for state, data in zip(self.states, self.each, strict=True)
        ]


def measure(case: Case, context: Context) -> CaseResult:
    """Trains the members both ways, compares them, and times both in turn."""
    config, kind, count = case.config, case.settings["kind"], case.settings["members"]
    setup = build_setup(config, context.backend)
    steps = steps_of(config, setup)
    found = members(kind, count, config, setup, steps)
    images = _images(setup)
    programs = _compiled(setup, found, images, context.backend, steps)
    compared = programs.at_once(min(steps, STEPS))
    metrics = _agreement(programs, compared, min(steps, STEPS)) | {"steps": steps}
    state, trained = compared if steps <= STEPS else programs.at_once(steps)
    losses = np.asarray(trained["loss"] / trained["count"])[:, -1].tolist()
    right, ensemble = _accuracies(programs, setup, state, found, images["label"], config.batch_size)
    metrics |= _quality(kind, found, right, ensemble) | _facts(programs, setup, config, count)
    samples, remarks = {}, equivalence.remark(metrics)
    if context.backend.simulated:
        remarks.append(NO_SPEEDS)
    else:
        times, samples, remark = _times(programs, config, count)
        metrics, remarks = metrics | times, [*remarks, remark]
    told = [
        {"name": member.name, "training_loss": loss, "accuracy": accuracy}
        for member, loss, accuracy in zip(found, losses, right, strict=True)
    ]
    devices = len(programs.over.devices)
    return CaseResult(
        metrics,
        samples,
        provenance={"strategy_devices": devices, "members": told, "remarks": remarks},
    )


def steps_of(config: RunConfig, setup: TrainingSetup) -> int:
    """Of each member: the recipe's first stage, in the quick preset its beginning."""
    whole = setup.fit_config.epochs * setup.fit_config.steps_per_epoch
    return min(whole, STEPS) if config.preset == "quick" else whole


def _images(setup: TrainingSetup) -> dict[str, np.ndarray]:
    """The training images, after them those held out."""
    parts = [
        as_arrays(split, setup.preprocessing.stored_shape)
        for split in (setup.splits.train, setup.splits.validation)
    ]
    return {
        "image": np.concatenate([part.images for part in parts]),
        "label": np.concatenate([part.labels for part in parts]),
    }


def _compiled(
    setup: TrainingSetup,
    found: list[Member],
    images: dict[str, np.ndarray],
    backend: Backend,
    steps: int,
) -> _Programs:
    over, device = Members(len(found), backend.devices), backend.devices[0]
    run = training.multi_step(setup.step, ScheduledFeed(steps))
    data = over.place_data(images | {"rows": np.stack([member.rows for member in found])}, _OWN)
    shared = jax.device_put(images, device)
    each = [shared | {"rows": jax.device_put(member.rows, device)} for member in found]
    state, states = (
        over.place([member.state for member in found]),
        [jax.device_put(m.state, device) for m in found],
    )
    together = compiled(over.compile(run, (0, _OWN, None)), state, data, np.int32(1))
    alone = jax.jit(run, compiler_options=setup.strategy.options or None)
    single = compiled(alone, states[0], each[0], np.int32(1))
    return _Programs(
        over, together.executable, single.executable, state, states, data, each, together.metrics
    )


def _agreement(programs: _Programs, at_once: Any, steps: int) -> dict[str, float]:
    """How far what the members are after so many steps is from what they are one by one."""
    state, together = at_once
    singles = jax.device_get(programs.one_by_one(steps))
    losses = np.asarray(together["loss"])[:, :steps]
    return {
        "largest_parameter_difference": equivalence.largest_difference(
            programs.over.fetch(state.params), [single.params for single, _ in singles]
        ),
        "largest_loss_difference": equivalence.largest_difference(
            losses, np.stack([each["loss"][:steps] for _, each in singles])
        ),
    }


def _accuracies(
    programs: _Programs,
    setup: TrainingSetup,
    state: Any,
    found: list[Member],
    labels: np.ndarray,
    batch_size: int,
) -> tuple[list[float], float]:
    """Of each member on what it was not trained on, and of the mean of their probabilities (for what they share)."""
    rows = np.stack([member.held_out for member in found])
    short = -rows.shape[1] % batch_size
    filled_up = np.concatenate([rows, np.repeat(rows[:, -1:], short, axis=1)], axis=1)

    def probabilities(state, data, rows):
        logits = setup.step.evaluation.outputs(state, data["image"][rows])
        return jax.nn.softmax(
            training.class_logits(logits[0] if isinstance(logits, tuple) else logits)
        )

    program = programs.over.compile(probabilities, (0, _OWN, 0))
    batches = np.split(filled_up, filled_up.shape[1] // batch_size, axis=1)
    parts = [
        np.asarray(program(state, programs.data, programs.over.place_data(batch, 0)))
        for batch in batches
    ]
    said = np.concatenate(parts, axis=1)[:, : rows.shape[1]]
    right = np.mean(np.argmax(said, axis=-1) == labels[rows], axis=1)
    return right.tolist(), float(
        np.mean(np.argmax(np.mean(said, axis=0), axis=-1) == labels[rows[0]])
    )


def _quality(
    kind: str, found: list[Member], right: list[float], ensemble: float
) -> dict[str, float]:
    metrics = {
        "members": len(found),
        "mean_accuracy": float(np.mean(right)),
        "accuracy_spread": float(np.std(right, ddof=1)),
    }
    if kind == "seeds":
        metrics["ensemble_accuracy"] = ensemble
    if kind == "rates":
        metrics["best_learning_rate"] = found[int(np.argmax(right))].learning_rate
    return metrics


def _facts(
    programs: _Programs, setup: TrainingSetup, config: RunConfig, count: int
) -> dict[str, float]:
    """Of a step of all members."""
    shape = setup.preprocessing.stored_shape
    batch = {
        "image": jax.ShapeDtypeStruct((config.batch_size, *shape), np.uint8),
        "label": jax.ShapeDtypeStruct((config.batch_size,), np.int32),
    }
    plan = planned(programs.together)
    return {
        "flops_per_step": count * model_flops(setup.step, setup.state, batch),
        "parameters": count * models.count_parameters(setup.model),
        **({"memory_planned": plan.total} if plan else {}),
    }


def _times(
    programs: _Programs, config: RunConfig, count: int
) -> tuple[dict[str, float], dict[str, list[float]], str]:
    """Seconds of a step of every member, both ways in turn."""
    steps = TIMED[config.preset]
    calls = {
        "step_time": lambda: programs.at_once(steps),
        "one_by_one_time": lambda: programs.one_by_one(steps),
    }
    timings: dict[str, Timing] = interleaved(
        calls, ROUNDS[config.preset], warm_up=WARM_UP[config.preset]
    )
    samples = {
        name: [seconds / steps for seconds in timing.samples] for name, timing in timings.items()
    }
    found = compare(samples["one_by_one_time"], samples["step_time"], paired=True)
    low, high = timings["step_time"].interval
    step_time = float(np.median(samples["step_time"]))
    metrics = {
        "step_time": step_time, "step_time_low": low / steps, "step_time_high": high / steps,
        "images_per_second": count * config.batch_size / step_time,
        "one_by_one_time": float(np.median(samples["one_by_one_time"])),
        "speed_up": found.ratio, "speed_up_low": found.low, "speed_up_high": found.high,
        **programs.compile_metrics,
    }  # fmt: skip
    return metrics, samples, f"{count} members one by one, against at once: {found.verdict}"
