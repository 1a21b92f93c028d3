"""One platform's training run, for a comparison with other platforms.

`experiments.analysis.platform_parity` compares the records of two platforms. The rounding drift of
a platform is measured with twins: the same run with every weight rounded once more before every
step.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.analysis.platform_parity import relative_differences
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.studies import train_cases
from experiments.studies.precision import product_bits
from experiments.workloads import loss_curve, pipelines
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.sharding import UNSHARDED

PRODUCTS = {"quick": ("highest",), "full": ("highest", "default")}
QUICK_EPOCHS = 2
PROJECTIONS = 4  # of each array of parameters
TWINS = 4  # see `experiments.analysis.platform_parity`
# Options that do not matter for the result, or that may differ between platforms.
IGNORED_SETTINGS = ("pipeline", "target_accuracy", "target_loss")
COLUMNS = ("steps", "training_loss", "test_loss", "test_accuracy", "product_bits", "rounding_drift")
ALONE = (
    "to compare platforms, run this on another one too and put its records into the same --results "
    "folder"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """Training with exact float32 products, and in the full preset also with the device's own.

    With exact products only rounding may differ between platforms.

    Raises:
      InputError: as in `train_cases.cases`.
    """
    config = config.with_defaults({"epochs": QUICK_EPOCHS} if config.preset == "quick" else {})
    (base,) = train_cases.cases(config, backend)
    return [_case(base, products) for products in PRODUCTS[config.preset]]


def _case(base: Case, products: str) -> Case:
    settings = {
        name: value for name, value in base.settings.items() if name not in IGNORED_SETTINGS
    }
    settings |= {"point": f"products {products}", "product_precision": products}
    return Case(base.config, settings, (*base.parts, products), base.data)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TwinState(training.TrainState):
    """The train state of a twin.

    Attributes:
      number: of the twin; part of the state, so that all twins share one program.
    """

    number: jax.Array


@dataclass(frozen=True)
class PerturbedStep:
    """A train step that reads every weight perturbed by one unit in its last place.

    Each weight is perturbed up or down at random. The perturbation is removed again after the step,
    so that it changes the weights only through the arithmetic of the step. It stands for another
    platform, which sums in another order.

    Attributes:
      step: the unperturbed step.
      size: of the perturbation, relative to the weight.
    """

    step: training.TrainStep
    size: float

    @property
    def evaluation(self) -> training.EvalStep:
        return self.step.evaluation

    def __call__(
        self, state: TwinState, batch: Batch, sharding: training.BatchSharding = UNSHARDED
    ) -> tuple[training.TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), state.number), state.step)
        perturbed = _perturb(state.params, key, self.size)
        next_state, metrics = self.step(state.replace(params=perturbed), batch, sharding)
        params = jax.tree.map(
            lambda new, moved, old: new - (moved - old), next_state.params, perturbed, state.params
        )
        return next_state.replace(params=params), metrics


def _perturb(params: Any, key: jax.Array, size: float) -> Any:
    """Multiplies each number by ``1 + size`` or ``1 - size``, at random."""
    leaves, structure = jax.tree.flatten(params)
    signs = [
        jax.random.rademacher(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(jax.random.split(key, len(leaves)), leaves, strict=True)
    ]
    return jax.tree.unflatten(
        structure, [leaf * (1 + size * sign) for leaf, sign in zip(leaves, signs, strict=True)]
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Trains once, and once more for each twin."""
    products = case.settings["product_precision"]
    with jax.default_matmul_precision(products):
        setup = build_setup(case.config, context.backend)
        bits = product_bits(context.backend.devices[0], case.config.precision)
        run = loss_curve.record(setup, pipelines.build(setup, setup.strategy.place(setup.state)))
        twins = [
            (twin.losses, sketch(setup.strategy.fetch(twin.state).params))
            for twin in _run_twins(setup, 2.0**-bits)
        ]
    start, end = sketch(setup.state.params), sketch(setup.strategy.fetch(run.state).params)
    drifts = [max(relative_differences(run.losses, losses)) for losses, _ in twins]
    return CaseResult(
        metrics={
            "steps": len(run.losses),
            "epochs": len(run.epochs),
            "training_loss": run.epochs[-1]["train_loss"],
            "test_loss": run.test["loss"],
            "test_accuracy": run.test["accuracy"],
            "product_bits": bits,
            "rounding_drift": max(drifts),
        },
        samples={
            "loss": run.losses,
            "twin_loss": [loss for losses, _ in twins for loss in losses],
            "norm": end.norms,
            "projection": end.projections,
            "twin_projection": [value for _, twin in twins for value in twin.projections],
            "start_norm": start.norms,
            "start_projection": start.projections,
        },
        curves=run.epochs,
        provenance=_provenance(setup, products, end.names),
    )


def _run_twins(setup: TrainingSetup, size: float) -> Iterator[loss_curve.LossCurve]:
    """Trains the twins one after the other.

    They share a pipeline, except a streamed one: a stream of batches can be used only once.
    """
    step: Any = PerturbedStep(setup.step, size)  # it has all of `TrainStep` that a pipeline uses
    perturbed = dataclasses.replace(setup, step=step)
    fields = {
        field.name: getattr(setup.state, field.name) for field in dataclasses.fields(setup.state)
    }
    pipeline = None
    for number in range(TWINS):
        state = TwinState(**fields, number=jnp.int32(number))
        if pipeline is None or pipeline.name == "streamed":
            pipeline = pipelines.build(perturbed, setup.strategy.place(state))
        yield loss_curve.record(setup, pipeline, state)


def _provenance(setup: TrainingSetup, products: str, names: list[str]) -> dict[str, Any]:
    return {
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "leaves": names,
        "precision": products,
        "projections": PROJECTIONS,
        "twins": TWINS,
        "remarks": [ALONE],
    }


@dataclass(frozen=True)
class Sketch:
    """A few numbers that represent a tree of parameters.

    Attributes:
      names: of the arrays, in order.
      norms: one for each array.
      projections: `PROJECTIONS` for each array: sums of its elements with random signs, which are
        the same everywhere. The mean square of the differences of two arrays' projections estimates
        the squared norm of the difference of the arrays.
    """

    names: list[str]
    norms: list[float]
    projections: list[float]


def sketch(params: Any) -> Sketch:
    """Computes the sketch of a tree of arrays, in float64 on the host.

    >>> sketch({"a": np.array([3.0, -4.0])}).norms
    [5.0]
    """
    arrays = {
        jax.tree_util.keystr(path): np.float64(leaf).ravel()
        for path, leaf in jax.tree.leaves_with_path(jax.device_get(params))
    }
    signs = np.random.RandomState(0)  # its stream never changes, unlike that of default_rng
    projections = [
        float(array @ (2.0 * signs.randint(0, 2, array.size) - 1))
        for array in arrays.values()
        for _ in range(PROJECTIONS)
    ]
    norms = [float(np.linalg.norm(array)) for array in arrays.values()]
    return Sketch(list(arrays), norms, projections)
