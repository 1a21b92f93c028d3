"""A trained network answers: how long does an answer take, how many a second, in how many bits, and at what accuracy?

System C11's figure, answers a second under a limit of latency, is `experiments.analysis.latency.served_within` of these records.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from experiments.analysis.latency import percentiles
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.memory import planned
from experiments.measure.noise import noise
from experiments.measure.timing import Compiled, compiled, timed
from experiments.studies import train
from experiments.workloads.trained_model import TrainedModel, as_stored, first_device, load_or_train
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.parallel.options import compiler_options
from jaxcnn.quantize import quantize, quantized_layers

PRECISIONS = {
    "float32": jnp.float32,
    "bfloat16": jnp.bfloat16,
    "int8": jnp.float32,
}  # of what is not in integers
BATCHES = {"quick": (1, 8, 32), "full": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)}
MOST_NUMBERS = (
    2**26
)  # in a batch of images: 256 of 224×224×3 and all of `BATCHES` of 28×28 are below
EPOCHS = {"quick": 5, "full": None}  # None: as the recipe has it
BUDGETS = {"quick": 0.3, "full": 4.0}  # seconds of sampling a case, unless `ANSWERS` need more
ANSWERS, MOST = (
    100,
    5000,
)  # timed at least and at most: of fewer than 100 the 99th percentile is the longest
PATIENCE = 5  # budgets after which there need not be 100
CALIBRATION = 256  # training images
TESTED = 32  # test images at a time: one of the batches, so that its program is compiled once
COLUMNS = (
    "latency_p50", "latency_p90", "latency_p99", "images_per_second", "call_time", "test_accuracy", "accuracy_loss",
    "model_bytes", "mfu", "images_per_joule_data_sheet",
)  # fmt: skip


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each precision and batch size; `--batch-size` asks for that one alone.

    Raises:
      InputError: as in the study `train`.
    """
    asked = config.replace(batch_size=None, strategy="jit", precision="float32").with_defaults(
        {"epochs": EPOCHS[config.preset]}
    )
    (training,) = train.cases(asked, first_device(backend))
    filled = (
        training.config.replace(image_size=config.image_size)
        if config.init_from
        else training.config
    )
    told = {"model": config.model, "dataset": config.dataset}
    told |= {"init_from": config.init_from} if config.init_from else {"training": training.settings}
    batches = (config.batch_size,) if config.batch_size else _batches(config)
    return [
        Case(
            filled,
            told | {"precision": precision, "batch_size": batch},
            (config.model, training.parts[1], precision, f"b{batch}"),
            training.data,
        )
        for precision in PRECISIONS
        for batch in batches
    ]


def _batches(config: RunConfig) -> tuple[int, ...]:
    height, width, channels = models.spec(config.model).input_shape
    numbers = (config.image_size**2 if config.image_size else height * width) * channels
    return tuple(batch for batch in BATCHES[config.preset] if batch * numbers <= MOST_NUMBERS)


@dataclass(frozen=True)
class Answering:
    """A network in one precision, ready to answer.

    Attributes:
      predict: ``predict(state, images: u8[N, h, w, C]) -> f32[N, classes]``.
      state: its numbers, on the device.
      accuracy: share of the test images that it gets right.
      size: bytes of its numbers.
      layers: names of those in 8-bit integers.
    """

    predict: Callable[[Any, Array], Array]
    state: Any
    accuracy: float
    size: int
    layers: tuple[str, ...]


def measure(case: Case, context: Context) -> CaseResult:
    """Latency and throughput of one batch size in one precision, on the first of the devices."""
    batch, precision, config = case.settings["batch_size"], case.settings["precision"], case.config
    one = first_device(context.backend)
    device, network = one.devices[0], load_or_train(config, one)
    answering = answering_in(precision, config, one)
    images, _ = as_stored(network.test, np.arange(batch) % len(network.test), network.preprocessing)
    placed = jax.device_put(images, device)
    program = _compiled(answering.predict, answering.state, placed)
    budget = BUDGETS[config.preset]
    samples = latencies(
        lambda: np.asarray(program.executable(answering.state, jax.device_put(images, device))),
        budget,
    )
    timing = timed(program.call, budget=budget / 2)
    whole = answering_in("float32", config, one)
    metrics = percentiles(samples) | _quality(answering, whole) | _work(answering, placed, program)
    metrics |= {
        "flops_per_call": model_flops(whole.predict, whole.state, placed),
        "parameters": models.count_parameters(network.model),
    }
    low, high = timing.interval
    return CaseResult(
        metrics
        | {
            "images_per_second": batch / metrics["latency_p50"],
            "call_time": timing.median,
            "call_time_low": low,
            "call_time_high": high,
            "flops_per_second": metrics["flops_per_call"] / timing.median,
        },
        {"latency": samples, "call_time": list(timing.samples)},
        provenance={
            "dtype": computed_in(precision, one.platform),
            "quantized_layers": list(answering.layers),
            "noise": noise(samples).verdict,
            "remarks": _remarks(precision, one.platform, samples),
        },
    )


def latencies(
    answer: Callable[[], Any],
    budget: float,
    *,
    least: int = ANSWERS,
    most: int = MOST,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of each of many answers, one at a time: what comes now and then must not vanish in a mean.

    Args:
      answer: from images on the host to an answer on the host; it is called a tenth as often first, to warm up.
      budget: seconds of sampling; fewer than `least` are taken only where those would need `PATIENCE` times as much.
      least, most: answers.
      clock: seconds.
    """
    start = clock()
    for _ in range(max(1, least // 10)):
        answer()
        if clock() - start > budget:
            break
    samples: list[float] = []
    spent = 0.0
    while len(samples) < most and spent < (budget if len(samples) >= least else PATIENCE * budget):
        start = clock()
        answer()
        samples.append(clock() - start)
        spent += samples[-1]
    return samples


@functools.lru_cache(maxsize=len(PRECISIONS))
def answering_in(precision: str, config: RunConfig, backend: Backend) -> Answering:
    """The trained network of a configuration in one of `PRECISIONS`, tested; each is kept, as the batch sizes share it."""
    network, dtype = load_or_train(config, backend), PRECISIONS[precision]
    preprocess = network.preprocessing.make_preprocess()
    model = network.model
    model.eval()
    if precision == "int8":
        rows = np.linspace(0, len(network.train) - 1, min(CALIBRATION, len(network.train))).astype(
            int
        )
        model = quantize(
            model,
            preprocess(jnp.asarray(as_stored(network.train, rows, network.preprocessing)[0]), None),
        )
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    params = jax.tree.map(lambda weights: weights.astype(dtype), nnx.to_pure_dict(params))
    state = jax.device_put((params, nnx.to_pure_dict(rest)), backend.devices[0])

    @jax.jit
    def predict(state, images):
        predictions = nnx.merge(graph, *state, copy=True)(preprocess(images, None).astype(dtype))
        return predictions.astype(jnp.float32)

    accuracy = _tested(predict, state, network, backend.devices[0])
    return Answering(predict, state, accuracy, _bytes(model, params), quantized_layers(model))


def _compiled(predict: Callable[[Any, Array], Array], state: Any, images: Array) -> Compiled:
    return compiled(
        predict,
        state,
        images,
        compiler_options=compiler_options(next(iter(images.devices())).platform),
    )


def _tested(
    predict: Callable[[Any, Array], Array], state: Any, network: TrainedModel, device: jax.Device
) -> float:
    """Share of right answers; the last batch is filled up with the last image, so that one program does."""
    right, count = 0, len(network.test)
    blank = jax.device_put(
        np.zeros((TESTED, *network.preprocessing.stored_shape), np.uint8), device
    )
    program = _compiled(predict, state, blank).executable
    for start in range(0, count, TESTED):
        rows = np.minimum(np.arange(start, start + TESTED), count - 1)
        images, labels = as_stored(network.test, rows, network.preprocessing)
        predictions = np.argmax(program(state, jax.device_put(images, device)), -1)
        right += int(np.sum((predictions == labels)[: count - start]))
    return right / count


def _bytes(model: nnx.Module, params: Any) -> int:
    """Of parameters, running statistics and integers; random keys are not needed for an answer."""
    others = nnx.state(model, nnx.Not(nnx.Any(nnx.Param, nnx.RngState)))
    return sum(leaf.nbytes for leaf in jax.tree.leaves((params, others)))


def _quality(answering: Answering, whole: Answering) -> dict[str, float]:
    lost = whole.accuracy - answering.accuracy
    return {
        "test_accuracy": answering.accuracy,
        "accuracy_loss": lost,
        "model_bytes": answering.size,
    }


def _work(answering: Answering, images: Array, program: Compiled) -> dict[str, float]:
    plan = planned(program.executable)
    return {
        "bytes_per_call": bytes_once(answering.predict, answering.state, images),
        **({"memory_planned": plan.total} if plan else {}),
    }


def computed_in(precision: str, platform: str) -> str:
    """In what a platform computes: 8-bit integers on a CPU in float32, see `jaxcnn.quantize.products`."""
    return "float32" if (precision, platform) == ("int8", "cpu") else precision


def _remarks(precision: str, platform: str, samples: list[float]) -> list[str]:
    told = {
        "int8 on this CPU: the integers are computed in float32, exactly; it shows what int8 costs in accuracy, not what it "
        "brings in speed": computed_in(precision, platform) != precision,
        f"99th percentile of {len(samples)} answers: the longest": len(samples) < ANSWERS,
    }
    return [remark for remark, holds in told.items() if holds]
