"""Latency, throughput, size and accuracy of a trained network, in three precisions.

From its records, `experiments.analysis.latency.served_within` computes the throughput under a limit
on latency.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.analysis.latency import percentiles
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.compiler import uses_winograd
from experiments.measure.energy import SECONDS, measure_energy
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.memory import memory_plan
from experiments.measure.noise import noise
from experiments.measure.timing import Compiled, Timing, time_call
from experiments.studies import train_cases
from experiments.workloads import network
from experiments.workloads.predictor import PRECISIONS, Predictor, compute_dtype, load_predictor
from experiments.workloads.trained_model import load_or_train, read_rows, single_device
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.quantize import NothingToQuantizeError

BATCH_SIZES = {
    "quick": (1, 8, 32),
    "full": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
}
# In a batch of images: admits 256 of 224×224×3, and all of `BATCH_SIZES` of 28×28.
MAX_ELEMENTS = 2**26
EPOCHS = {"quick": 5, "full": None}  # None: as in the recipe
BUDGETS = {"quick": 0.3, "full": 4.0}  # seconds of sampling, unless `MIN_CALLS` take longer
MIN_CALLS = 100  # with fewer samples, the 99th percentile is the largest
MAX_CALLS = 5000
MAX_BUDGETS = 5  # sampling ends after this multiple of the budget even before `MIN_CALLS`
ANSWERS = ("ok", "unsupported")  # the latter if no layer can compute in 8-bit integers
COLUMNS = (
    "latency_p50",
    "latency_p90",
    "latency_p99",
    "images_per_second",
    "call_time",
    "test_accuracy",
    "accuracy_loss",
    "model_bytes",
    "mfu",
    "images_per_joule",
    "images_per_joule_data_sheet",
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each precision and batch size; `--batch-size` selects that one alone.

    Raises:
      InputError: as in the study `train`.
    """
    training_config = config.replace(batch_size=None, strategy="jit", precision="float32")
    training_config = training_config.with_defaults({"epochs": EPOCHS[config.preset]})
    (training,) = train_cases.cases(training_config, single_device(backend))
    case_config = training.config
    settings: dict[str, Any] = {"model": training.settings["model"], "dataset": config.dataset}
    if config.init_from:
        case_config = case_config.replace(image_size=config.image_size)
        settings["init_from"] = config.init_from
        settings |= {"image_size": config.image_size} if config.image_size else {}
    else:
        settings["training"] = training.settings
    return [
        Case(
            case_config,
            settings | {"precision": precision, "batch_size": batch_size},
            (*training.parts[:2], precision, f"b{batch_size}"),
            training.data,
        )
        for precision in PRECISIONS
        for batch_size in _batch_sizes(config)
    ]


def _batch_sizes(config: RunConfig) -> tuple[int, ...]:
    if config.batch_size:
        return (config.batch_size,)
    elements = _elements(config)
    return tuple(size for size in BATCH_SIZES[config.preset] if size * elements <= MAX_ELEMENTS)


def _elements(config: RunConfig) -> int:
    """Numbers in an image."""
    published = models.spec(config.model).input_shape
    if published and not config.image_size:
        return math.prod(published)
    return network.image_size(config) ** 2 * network.channels(config)


def check(case: Case) -> None:
    """Rejects a training that is impossible, as `train_cases.check` does."""
    if not case.config.init_from:
        train_cases.check(case)


def measure(case: Case, context: Context) -> CaseResult:
    """Latency and throughput of one batch size in one precision, on the first device."""
    config, precision = case.config, case.settings["precision"]
    batch_size, budget = case.settings["batch_size"], BUDGETS[config.preset]
    backend = single_device(context.backend)
    device, trained = backend.devices[0], load_or_train(config, backend)
    try:
        predictor = load_predictor(precision, config, backend)
    except NothingToQuantizeError as error:  # a user's own model in another library
        return CaseResult(status="unsupported", message=str(error))
    rows = np.arange(batch_size) % len(trained.test)
    images, _ = read_rows(trained.test, rows, trained.preprocessing)
    placed = jax.device_put(images, device)
    program = predictor.compile(placed)

    def predict() -> np.ndarray:
        return np.asarray(program.executable(predictor.state, jax.device_put(images, device)))

    latencies = sample_latencies(predict, budget)
    timing = time_call(program.call, budget=budget / 2)
    float32 = load_predictor("float32", config, backend)
    flops = model_flops(float32.predict, float32.state, placed)
    metrics = percentiles(latencies)
    metrics |= _predictor_metrics(predictor, placed, program) | _timing_metrics(timing, flops)
    metrics |= {
        "accuracy_loss": float32.accuracy - predictor.accuracy,
        "parameters": models.count_parameters(trained.model),
        "images_per_second": batch_size / metrics["latency_p50"],
    }
    energy = measure_energy(predict, [device], seconds=SECONDS[config.preset])
    metrics |= energy.metrics if energy else {}
    return CaseResult(
        metrics,
        {"latency": latencies, "call_time": list(timing.samples)},
        provenance={
            "dtype": compute_dtype(precision, backend.platform),
            "quantized_layers": list(predictor.quantized_layers),
            "noise": noise(latencies).verdict,
            "winograd": uses_winograd(program.executable),
            **({"power_source": energy.source} if energy else {}),
            "remarks": _remarks(precision, backend.platform, len(latencies)),
        },
    )


def sample_latencies(
    call: Callable[[], Any],
    budget: float,
    *,
    min_calls: int = MIN_CALLS,
    max_calls: int = MAX_CALLS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Times many calls one by one, so that rare delays are not averaged out.

    Args:
      call: from images on the host to predictions on the host. To warm up, it is first called a
        tenth of `min_calls` times, within the budget.
      budget: seconds of sampling; extended up to `MAX_BUDGETS` times to reach `min_calls`.
      min_calls, max_calls: bounds on the number of samples.
      clock: seconds.

    Returns:
      The seconds of each call.
    """
    start = clock()
    for _ in range(max(1, min_calls // 10)):
        call()
        if clock() - start > budget:
            break
    samples: list[float] = []
    elapsed = 0.0
    while len(samples) < max_calls:
        if elapsed >= (budget if len(samples) >= min_calls else MAX_BUDGETS * budget):
            break
        start = clock()
        call()
        samples.append(clock() - start)
        elapsed += samples[-1]
    return samples


def _predictor_metrics(
    predictor: Predictor, images: jax.Array, program: Compiled
) -> dict[str, float]:
    plan = memory_plan(program.executable)
    return {
        "test_accuracy": predictor.accuracy,
        "model_bytes": predictor.model_bytes,
        "bytes_per_call": compulsory_bytes(predictor.predict, predictor.state, images),
        **({"memory_planned": plan.total} if plan else {}),
    }


def _timing_metrics(timing: Timing, flops: int) -> dict[str, float]:
    """Metrics of a call whose images already lie on the device."""
    low, high = timing.interval
    return {
        "call_time": timing.median,
        "call_time_low": low,
        "call_time_high": high,
        "flops_per_call": flops,
        "flops_per_second": flops / timing.median,
    }


def _remarks(precision: str, platform: str, calls: int) -> list[str]:
    remarks = []
    if compute_dtype(precision, platform) != precision:
        remarks.append(
            "int8 on this CPU: the integers are computed in float32, exactly; this shows what int8 "
            "costs in accuracy, not what it gains in speed"
        )
    if calls < MIN_CALLS:
        remarks.append(f"the 99th percentile of {calls} latencies is the largest of them")
    return remarks
