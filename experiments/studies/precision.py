"""Precision (C10): what do bfloat16, float16 and the device's quick float32 products gain, and what do they cost?"""

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.memory import planned
from experiments.measure.noise import median_interval
from experiments.studies import train
from experiments.workloads import loss_curve, pipelines
from experiments.workloads.setup import TrainingSetup, build_setup
from jaxcnn import models
from jaxcnn.backend import Backend

POLICIES = (
    ("float32", "highest"),
    ("float32", "default"),
    ("bfloat16", "default"),
    ("float16", "default"),
)
EPOCHS = 2  # of the quick preset
COLUMNS = (
    "step_time", "images_per_second", "memory_planned", "training_loss", "test_accuracy", "product_bits", "mfu",
    "mfu_measured_peak",
)  # fmt: skip


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The same training in each precision: float32 with products in full and as the device has them, bfloat16, float16.

    Raises:
      InputError: as of `train.cases`.
    """
    config = config.with_defaults({"epochs": EPOCHS} if config.preset == "quick" else {})
    bases = [
        (train.cases(config.replace(precision=precision), backend)[0], products)
        for precision, products in POLICIES
    ]
    return [_case(base, products) for base, products in bases]


def _case(base: Case, products: str) -> Case:
    point = f"{base.config.precision}, products {products}"
    return Case(
        base.config,
        base.settings | {"point": point, "product_precision": products},
        (*base.parts, products),
        base.data,
    )


def measure(case: Case, context: Context) -> CaseResult:
    """One training run: every step's loss, the accuracy in the end, time and memory."""
    config, products = case.config, case.settings["product_precision"]
    with jax.default_matmul_precision(products):
        setup = build_setup(config, context.backend)
        pipeline = pipelines.build(setup, setup.strategy.place(setup.state))
        curve = loss_curve.record(setup, pipeline)
        bits = product_bits(context.backend.devices[0])
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
        metrics |= _speed(setup, pipeline, config, curve.step_times)
        samples |= {"step_time": curve.step_times}
    told = {
        "examples": {
            name: len(getattr(setup.splits, name)) for name in ("train", "validation", "test")
        }
    }
    told |= {
        "strategy_devices": len(setup.strategy.devices),
        "compiler_options": setup.strategy.options,
        "precision": products,
    }
    return CaseResult(metrics, samples, curve.epochs, provenance=told)


def _speed(
    setup: TrainingSetup, pipeline: pipelines.Pipeline, config: RunConfig, times: list[float]
) -> dict[str, float]:
    batch = {
        "image": jax.ShapeDtypeStruct(
            (config.batch_size, *setup.preprocessing.stored_shape), np.uint8
        ),
        "label": jax.ShapeDtypeStruct((config.batch_size,), np.int32),
    }
    plan, (low, high), step_time = (
        planned(pipeline.program.executable),
        median_interval(times),
        float(np.median(times)),
    )
    return _work(setup, batch, step_time, config) | {
        "step_time": step_time,
        "step_time_low": low,
        "step_time_high": high,
        "images_per_second": config.batch_size / step_time,
        **pipeline.program.metrics,
        "parameters": models.count_parameters(setup.model),
        **({"memory_planned": plan.total} if plan else {}),
    }


def _work(
    setup: TrainingSetup,
    batch: dict[str, jax.ShapeDtypeStruct],
    step_time: float,
    config: RunConfig,
) -> dict[str, float]:
    """FLOPs and bytes; none in the quick preset, so that no peak is measured, which takes seconds for each precision."""
    if config.preset == "quick":
        return {}
    flops, moved = (
        model_flops(setup.step, setup.state, batch),
        bytes_once(setup.step, setup.state, batch),
    )
    return {"flops_per_step": flops, "flops_per_second": flops / step_time, "bytes_per_step": moved}


FRACTION = 23  # bits of a float32's fraction
SIDE = 256  # of the products that are looked at: large enough for matrix units


def product_bits(device: jax.Device) -> int:
    """Bits of a float32 factor's fraction that a matrix product keeps: 23 in full, 10 as TF32, 7 as bfloat16.

    Rows of ``1 + 2**-k`` times the identity: where a product rounds its factors to fewer than k bits, a row of ones comes back.
    In the precision that `jax.default_matmul_precision` has set.
    """
    powers = np.arange(SIDE) % FRACTION + 1
    rows = np.repeat((1 + 0.5**powers).astype(np.float32)[:, None], SIDE, axis=1)
    product = jax.jit(lambda a, b: a @ b)(
        *jax.device_put((rows, np.eye(SIDE, dtype=np.float32)), device)
    )
    return kept_bits(np.asarray(product), rows)


def kept_bits(product: np.ndarray, rows: np.ndarray) -> int:
    """The largest k up to which every row ``1 + 2**-k`` came back whole; the kth row, the ``23 + k``th and so on have that k.

    >>> kept_bits(np.ones((23, 1)), np.ones((23, 1))), kept_bits(np.zeros((23, 1)), np.ones((23, 1)))
    (23, 0)
    """
    lost = np.flatnonzero(np.any(product != rows, axis=1)) % FRACTION
    return int(lost.min()) if lost.size else FRACTION
