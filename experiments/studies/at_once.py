"""Many networks trained in one program, compared with training them one after the other.

The networks are the members of an ensemble, the folds of a cross-validation, or the points of a
grid of learning rates. This is the third of the three kinds of parallelism in Kheradpisheh's
lecture "GPUs for Neural Networks": split the model, split the data, or split the training.
"""

import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import model_flops
from experiments.measure.memory import memory_plan
from experiments.measure.noise import compare
from experiments.measure.timing import time_interleaved
from experiments.studies import train_cases
from experiments.workloads import equivalence, synthetic_step
from experiments.workloads.ensemble_programs import (
    EnsemblePrograms,
    compare_programs,
    compile_programs,
    evaluate_members,
)
from experiments.workloads.ensembles import Member, all_images, build_members
from experiments.workloads.setup import TrainingSetup, abstract_batch, build_setup
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

CASES = {  # kind and number of members; the quick ones share one program
    "quick": (("seeds", 8), ("folds", 8), ("rates", 8)),
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
TIMED_STEPS = {"quick": 1, "full": 20}  # of each member in a round, all in one dispatch
WARM_UP = {"quick": 0.1, "full": 1.0}  # seconds
STEPS = 16  # after which both ways are compared; the quick preset trains no longer
COLUMNS = (
    "members",
    "step_time",
    "one_by_one_time",
    "speed_up",
    "memory_planned",
    "largest_parameter_difference",
    "mean_accuracy",
    "accuracy_spread",
    "ensemble_accuracy",
    "best_learning_rate",
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """Ensembles, folds and grids, trained by the first stage of the recipe.

    The quick preset takes only the first steps of that stage.

    Raises:
      InputError: as in `train_cases.cases`; or initial weights are given, as the members of an
        ensemble each have their own.
    """
    if config.init_from:
        raise InputError(
            "--init-from: the members of an ensemble start from weights of their own; leave it out"
        )
    config = config.with_defaults({"epochs": 1} if config.preset == "quick" else {})
    (base,) = train_cases.cases(config.replace(strategy="jit"), backend)
    return [_case(base, kind, count) for kind, count in CASES[config.preset]]


def _case(base: Case, kind: str, count: int) -> Case:
    settings = base.settings | {"point": f"{count} {kind}", "kind": kind, "members": count}
    settings |= {"most_steps": STEPS if base.config.preset == "quick" else None}
    return Case(base.config, settings, (*base.parts, kind, f"x{count}"), base.data)


def measure(case: Case, context: Context) -> CaseResult:
    """Trains the members both ways, compares the results, and times both ways in turn."""
    kind, count = case.settings["kind"], case.settings["members"]
    setup = build_setup(case.config, context.backend)
    steps = _steps(setup)
    members, images = build_members(kind, count, setup, steps), all_images(setup)
    programs = compile_programs(setup, members, images, context.backend, steps)
    compared_steps = min(steps, STEPS)
    trained = programs.train_at_once(compared_steps)
    metrics = compare_programs(programs, trained, compared_steps) | {"steps": steps}
    if steps > STEPS:
        trained = programs.train_at_once(steps)
    state, step_metrics = trained
    losses = np.asarray(step_metrics["loss"] / step_metrics["count"])[:, -1].tolist()
    accuracies, ensemble = evaluate_members(programs, setup, state, members, images["label"])
    metrics |= _quality(kind, members, accuracies, ensemble) | _resources(programs, setup, count)
    samples: dict[str, list[float]] = {}
    remarks = equivalence.remarks(metrics)
    if context.backend.simulated:
        remarks.append(synthetic_step.SIMULATED)
    else:
        times, samples, remark = _times(programs, case.config, count)
        metrics, remarks = metrics | times, [*remarks, remark]
    provenance = {
        "strategy_devices": len(programs.mapping.devices),
        "members": [
            {"name": member.name, "training_loss": loss, "accuracy": accuracy}
            for member, loss, accuracy in zip(members, losses, accuracies, strict=True)
        ],
        "remarks": remarks,
    }
    return CaseResult(metrics, samples, provenance=provenance)


def _steps(setup: TrainingSetup) -> int:
    """Train steps of each member: the recipe's first stage, or its first steps when quick."""
    stage = setup.fit_config.epochs * setup.fit_config.steps_per_epoch
    return min(stage, STEPS) if setup.config.preset == "quick" else stage


def _quality(
    kind: str, members: list[Member], accuracies: list[float], ensemble: float
) -> dict[str, float]:
    metrics = {
        "members": len(members),
        "mean_accuracy": float(np.mean(accuracies)),
        "accuracy_spread": float(np.std(accuracies, ddof=1)),
    }
    if kind == "seeds":
        metrics["ensemble_accuracy"] = ensemble
    if kind == "rates":
        metrics["best_learning_rate"] = members[int(np.argmax(accuracies))].learning_rate
    return metrics


def _resources(programs: EnsemblePrograms, setup: TrainingSetup, count: int) -> dict[str, float]:
    """FLOPs, parameters and memory of all members together."""
    plan = memory_plan(programs.all_members)
    batch = abstract_batch(setup.config, setup.preprocessing)
    return {
        "flops_per_step": count * model_flops(setup.step, setup.state, batch),
        "parameters": count * models.count_parameters(setup.model),
        **({"memory_planned": plan.total} if plan else {}),
    }


def _times(
    programs: EnsemblePrograms, config: RunConfig, count: int
) -> tuple[dict[str, float], dict[str, list[float]], str]:
    """Metrics and samples of a step of all members, both ways timed in turn; and a remark."""
    steps = TIMED_STEPS[config.preset]
    timings = time_interleaved(
        {
            "step_time": lambda: programs.train_at_once(steps),
            "one_by_one_time": lambda: programs.train_one_by_one(steps),
        },
        ROUNDS[config.preset],
        warm_up=WARM_UP[config.preset],
    )
    samples = {
        name: [seconds / steps for seconds in timing.samples] for name, timing in timings.items()
    }
    speed_up = compare(samples["one_by_one_time"], samples["step_time"], paired=True)
    low, high = timings["step_time"].interval
    step_time = float(np.median(samples["step_time"]))
    metrics = {
        "step_time": step_time,
        "step_time_low": low / steps,
        "step_time_high": high / steps,
        "images_per_second": count * config.batch_size / step_time,
        "one_by_one_time": float(np.median(samples["one_by_one_time"])),
        "speed_up": speed_up.ratio,
        "speed_up_low": speed_up.low,
        "speed_up_high": speed_up.high,
        **programs.compile_metrics,
    }
    remark = f"{count} members one by one, compared with at once: {speed_up.verdict}"
    return metrics, samples, remark
