"""Is it the same training on every platform? What one platform says: its losses, its weights, and how far rounding drifts there.

Records of two platforms are compared by `experiments.analysis.drift.parities`.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.analysis.drift import apart
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.studies import train
from experiments.studies.precision import product_bits
from experiments.workloads import loss_curve, pipelines
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.step import UNSHARDED

PRODUCTS = {"quick": ("highest",), "full": ("highest", "default")}
EPOCHS = 2  # of the quick preset
PROJECTIONS = 4  # of each array of parameters
TWINS = 4  # see `experiments.analysis.drift`
KEPT = {"float32": 23, "bfloat16": 7, "float16": 10}  # bits of the fraction
COLUMNS = ("steps", "training_loss", "test_loss", "test_accuracy", "product_bits", "rounding_drift")
ALONE = "run this on another platform too, into the same --results: the records are held against each other"


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """With products in full, where only rounding may differ; in the full preset also as the device has them.

    Which strategy is not among the settings: its results must be the same too.

    Raises:
      InputError: as of `train.cases`.
    """
    config = config.with_defaults({"epochs": EPOCHS} if config.preset == "quick" else {})
    (base,) = train.cases(config, backend)
    return [_case(base, products) for products in PRODUCTS[config.preset]]


def _case(base: Case, products: str) -> Case:
    settings = {
        name: value
        for name, value in base.settings.items()
        if name not in ("pipeline", "target_accuracy", "target_loss")
    }
    settings |= {"point": f"products {products}", "product_precision": products}
    return Case(base.config, settings, (*base.parts, products), base.data)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Twin(training.TrainState):
    """The state of a twin, with its number, so that all twins share a program."""

    number: jax.Array


@dataclass(frozen=True)
class Nudged:
    """A train step of a `Twin` that reads its weights rounded once more: each up or down, at random, by one unit in its last place.

    What it adds to the weights it takes off again after the step, so that they are changed by what the arithmetic made of the
    nudge alone. It stands for another platform, which sums in another order.

    Attributes:
      step: the step.
      size: of the nudge, relative to the weight.
    """

    step: training.TrainStep
    size: float

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.step.metrics

    @property
    def evaluation(self) -> training.EvalStep:
        return self.step.evaluation

    def __call__(
        self, state: Twin, batch: Batch, sharding: training.BatchSharding = UNSHARDED
    ) -> tuple[Twin, Metrics]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), state.number), state.step)
        nudged = _moved(state.params, key, self.size)
        after, metrics = self.step(state.replace(params=nudged), batch, sharding)
        params = jax.tree.map(
            lambda new, moved, old: new - (moved - old), after.params, nudged, state.params
        )
        return after.replace(params=params), metrics


def _moved(params: Any, key: jax.Array, size: float) -> Any:
    """Each number times ``1 + size`` or ``1 - size``."""
    leaves, structure = jax.tree.flatten(params)
    signs = [
        jax.random.rademacher(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(jax.random.split(key, len(leaves)), leaves, strict=True)
    ]
    return structure.unflatten(
        [leaf * (1 + size * sign) for leaf, sign in zip(leaves, signs, strict=True)]
    )


def measure(case: Case, context: Context) -> CaseResult:
    """The run, and its twins that are rounded otherwise."""
    config, products = case.config, case.settings["product_precision"]
    with jax.default_matmul_precision(products):
        setup = build_setup(config, context.backend)
        bits = min(product_bits(context.backend.devices[0]), KEPT[config.precision])
        run = loss_curve.record(setup, pipelines.build(setup, setup.strategy.place(setup.state)))
        twins = [_twin(setup, each) for each in _twins(setup, 2.0**-bits)]
    start, end = sketch(setup.state.params), sketch(setup.strategy.fetch(run.state).params)
    metrics = {
        "steps": len(run.losses), "epochs": len(run.epochs), "training_loss": run.epochs[-1]["train_loss"],
        "test_loss": run.test["loss"], "test_accuracy": run.test["accuracy"], "product_bits": bits,
        "rounding_drift": max(max(apart(run.losses, losses)) for losses, _ in twins),
    }  # fmt: skip
    samples = {
        "loss": run.losses, "twin_loss": [loss for losses, _ in twins for loss in losses], "norm": end.norms,
        "projection": end.projections, "twin_projection": [value for _, sketched in twins for value in sketched.projections],
        "start_norm": start.norms, "start_projection": start.projections,
    }  # fmt: skip
    told = {
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "leaves": end.names,
    }
    told |= {"precision": products, "projections": PROJECTIONS, "twins": TWINS, "remarks": [ALONE]}
    return CaseResult(metrics, samples, run.epochs, provenance=told)


def _twins(setup: TrainingSetup, size: float) -> Iterator[loss_curve.LossCurve]:
    """One after the other; a stream of batches serves one run alone, so there each has its pipeline."""
    nudged, pipeline = dataclasses.replace(setup, step=Nudged(setup.step, size)), None
    fields = {
        field.name: getattr(setup.state, field.name) for field in dataclasses.fields(setup.state)
    }
    for number in range(TWINS):
        state = Twin(**fields, number=jnp.int32(number))
        if pipeline is None or pipeline.name == "streamed":
            pipeline = pipelines.build(nudged, setup.strategy.place(state))
        yield loss_curve.record(setup, pipeline, state)


def _twin(setup: TrainingSetup, run: loss_curve.LossCurve) -> tuple[list[float], "Sketch"]:
    return run.losses, sketch(setup.strategy.fetch(run.state).params)


@dataclass(frozen=True)
class Sketch:
    """A few numbers that stand for parameters.

    Attributes:
      names: of the arrays, in order.
      norms: of each array.
      projections: of each array, `PROJECTIONS` sums of its numbers with random signs that are the same everywhere. The mean
        square of the differences of two arrays' projections estimates the squared norm of the arrays' difference.
    """

    names: list[str]
    norms: list[float]
    projections: list[float]


def sketch(params: Any) -> Sketch:
    """The sketch of a tree of parameters, in float64 on the host.

    >>> sketch({"a": np.array([3.0, -4.0])}).norms
    [5.0]
    """
    named = {
        jax.tree_util.keystr(path): np.float64(leaf).ravel()
        for path, leaf in jax.tree.leaves_with_path(jax.device_get(params))
    }
    signs = np.random.RandomState(0)  # its stream is promised never to change, unlike default_rng's
    projections = [
        float(leaf @ (2.0 * signs.randint(0, 2, leaf.size) - 1))
        for leaf in named.values()
        for _ in range(PROJECTIONS)
    ]
    return Sketch(
        list(named), [float(np.linalg.norm(leaf)) for leaf in named.values()], projections
    )
