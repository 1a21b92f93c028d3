"""Lower precisions: what bfloat16, float16 and fast float32 products gain, and what they cost.

The products are those that tensor cores compute: factors of half precision, sums in single
precision.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.compiler import uses_winograd
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.intervals import median_interval
from experiments.measure.memory import memory_plan
from experiments.studies import train_cases
from experiments.workloads import loss_curve, pipelines
from experiments.workloads.setup import TrainingSetup, abstract_batch, build_setup
from jaxcnn import models
from jaxcnn.backend import Backend

# The precision of the training, and that of float32 products (`jax.default_matmul_precision`).
POLICIES = (
    ("float32", "highest"),
    ("float32", "default"),
    ("bfloat16", "default"),
    ("float16", "default"),
)
QUICK_EPOCHS = 2
COLUMNS = (
    "step_time",
    "images_per_second",
    "memory_planned",
    "training_loss",
    "test_accuracy",
    "product_bits",
    "mfu",
    "mfu_measured_peak",
)
FRACTION_BITS = {"float32": 23, "bfloat16": 7, "float16": 10}
PROBE_SIZE = 256  # rows and columns of the probed product: large enough for matrix units


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The same training in float32 with exact and with fast products, in bfloat16 and in float16.

    Raises:
      InputError: as in `train_cases.cases`.
    """
    config = config.with_defaults({"epochs": QUICK_EPOCHS} if config.preset == "quick" else {})
    return [
        _case(train_cases.cases(config.replace(precision=precision), backend)[0], products)
        for precision, products in POLICIES
    ]


def _case(base: Case, products: str) -> Case:
    point = f"{base.config.precision}, products {products}"
    settings = base.settings | {"point": point, "product_precision": products}
    return Case(base.config, settings, (*base.parts, products), base.data)


def measure(case: Case, context: Context) -> CaseResult:
    """One training run: the loss of every step, the final accuracy, time and memory."""
    products = case.settings["product_precision"]
    with jax.default_matmul_precision(products):
        setup = build_setup(case.config, context.backend)
        pipeline = pipelines.build(setup, setup.strategy.place(setup.state))
        curve = loss_curve.record(setup, pipeline)
        bits = product_bits(context.backend.devices[0], case.config.precision)
    metrics = {
        "test_accuracy": curve.test["accuracy"],
        "test_loss": curve.test["loss"],
        "training_loss": curve.epochs[-1]["train_loss"],
        "steps": len(curve.losses),
        "epochs": len(curve.epochs),
        "product_bits": bits,
    }
    samples = {"loss": curve.losses}
    if not context.backend.simulated:
        metrics |= _speed(setup, pipeline, curve.step_times)
        samples |= {"step_time": curve.step_times}
    splits = ("train", "validation", "test")
    provenance = {
        "examples": {name: len(getattr(setup.splits, name)) for name in splits},
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "winograd": uses_winograd(pipeline.program.executable),
        "precision": products,
    }
    return CaseResult(metrics, samples, curve.epochs, provenance=provenance)


def _speed(
    setup: TrainingSetup, pipeline: pipelines.Pipeline, times: list[float]
) -> dict[str, float]:
    """Metrics of the train step, from the seconds per step of each dispatch."""
    step_time = float(np.median(times))
    low, high = median_interval(times)
    plan = memory_plan(pipeline.program.executable)
    return _work(setup, step_time) | {
        "step_time": step_time,
        "step_time_low": low,
        "step_time_high": high,
        "images_per_second": setup.config.batch_size / step_time,
        **pipeline.program.metrics,
        "parameters": models.count_parameters(setup.model),
        **({"memory_planned": plan.total} if plan else {}),
    }


def _work(setup: TrainingSetup, step_time: float) -> dict[str, float]:
    """FLOPs and bytes of a step; nothing in the quick preset.

    With them, the peak of the device would be measured for the figures of merit, which takes
    seconds for each precision.
    """
    if setup.config.preset == "quick":
        return {}
    batch = abstract_batch(setup.config, setup.preprocessing)
    flops = model_flops(setup.step, setup.state, batch)
    return {
        "flops_per_step": flops,
        "flops_per_second": flops / step_time,
        "bytes_per_step": compulsory_bytes(setup.step, setup.state, batch),
    }


def product_bits(device: jax.Device, dtype: str = "float32") -> int:
    """Bits of a factor's fraction that a matrix product keeps.

    Of float32 23 if the product is exact, 10 for TF32, 7 for bfloat16. The product is computed in
    the precision that `jax.default_matmul_precision` has set. It multiplies rows of ``1 + 2**-k``
    by the identity: where the factors are rounded to fewer than k bits, the row of the result
    consists of ones.

    Args:
      device: one of JAX's.
      dtype: of the factors, a key of `FRACTION_BITS`.
    """
    bits = FRACTION_BITS[dtype]
    powers = np.arange(PROBE_SIZE) % bits + 1
    rows = np.repeat((1 + 0.5**powers).astype(jnp.dtype(dtype))[:, None], PROBE_SIZE, axis=1)
    identity = np.eye(PROBE_SIZE, dtype=rows.dtype)
    product = jax.jit(lambda a, b: a @ b)(*jax.device_put((rows, identity), device))
    return count_kept_bits(np.asarray(product), rows, bits)


def count_kept_bits(product: np.ndarray, rows: np.ndarray, bits: int = 23) -> int:
    """The largest k such that all rows ``1 + 2**-1`` to ``1 + 2**-k`` are unchanged.

    Args:
      product: the rows after the multiplication by the identity.
      rows: before it; ``k`` is 1, 2, …, `bits`, 1, 2, … from row to row.
      bits: of the fraction of a number.

    >>> count_kept_bits(np.ones((23, 1)), np.ones((23, 1)))
    23
    >>> count_kept_bits(np.zeros((23, 1)), np.ones((23, 1)))
    0
    """
    changed = np.flatnonzero(np.any(product != rows, axis=1)) % bits
    return int(changed.min()) if changed.size else bits
