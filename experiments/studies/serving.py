"""Inference under an open-loop load: latency against the rate of requests.

Requests of an image each arrive at random, at a rate that does not depend on the answers (a Poisson
process). A server that is idle takes all that wait, up to the largest batch, and answers them
together. The latency of a request counts from its arrival, so that one that had to wait is not left
out, as it would be if the next request were sent after the last answer (Schroeder, Wierman and
Harchol-Balter 2006, *Open Versus Closed: A Cautionary Tale*).
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.analysis.latency import LIMIT, percentiles
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.studies import inference
from experiments.workloads.predictor import Predictor, compute_dtype, load_predictor
from experiments.workloads.trained_model import load_or_train, read_rows, single_device
from jaxcnn.backend import Backend
from jaxcnn.quantize import NothingToQuantizeError

MAX_BATCH = 32  # unless --batch-size is given
SHARES = {  # of the rate that the server reaches if requests always wait
    "quick": (0.1, 0.3, 0.5, 0.7, 0.9, 1.1),
    "full": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1),
}
SECONDS = {"quick": 1.0, "full": 10.0}  # of requests at each rate
MIN_REQUESTS = 200  # at each rate: the 99th percentile of fewer is one of the two largest
FULL_BATCHES = 5  # from which the server's own rate is measured
COLUMNS = ("served_rate", "latency_p50", "latency_p90", "latency_p99", "images_per_second")

Answer = Callable[[int], Any]


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each precision; ``--batch-size`` is the largest batch.

    Raises:
      InputError: as in the study `inference`.
    """
    largest = config.batch_size or MAX_BATCH
    return [
        dataclasses.replace(case, settings=case.settings | {"batch_size": largest})
        for case in inference.cases(config.replace(batch_size=largest), backend)
    ]


def has_figures_of_merit(case: Case, backend: Backend) -> bool:
    """Its rates are those of requests, not of the device."""
    return False


def measure(case: Case, context: Context) -> CaseResult:
    """Latencies at rising rates of requests, for one precision, on the first device."""
    config, precision = case.config, case.settings["precision"]
    backend = single_device(context.backend)
    trained = load_or_train(config, backend)
    try:
        predictor = load_predictor(precision, config, backend)
    except NothingToQuantizeError as error:  # a user's own model in another library
        return CaseResult(status="unsupported", message=str(error))
    sizes = batch_sizes(case.settings["batch_size"])
    rows = np.arange(sizes[-1]) % len(trained.test)
    images, _ = read_rows(trained.test, rows, trained.preprocessing)
    answer = _compile(predictor, images, sizes, backend.devices[0])
    capacity = _capacity(answer, sizes[-1])
    rng = np.random.default_rng(config.seed)
    load = []
    for share in SHARES[config.preset]:
        rate = share * capacity
        count = max(MIN_REQUESTS, round(rate * SECONDS[config.preset]))
        arrivals = np.cumsum(rng.exponential(1 / rate, count))
        latencies = serve(arrivals, answer, sizes)
        load.append({"rate": rate, "requests": count} | percentiles(latencies))
    best = highest_within(load, LIMIT)
    metrics = {"images_per_second": capacity}
    if best:
        names = ("latency_p50", "latency_p90", "latency_p99")
        metrics |= {"served_rate": best["rate"]} | {name: best[name] for name in names}
    provenance = {
        "dtype": compute_dtype(precision, backend.platform),
        "latency_limit": LIMIT,
        "load": load,
        "remarks": [_remark(load, best, capacity)],
    }
    return CaseResult(metrics, provenance=provenance)


def batch_sizes(largest: int) -> tuple[int, ...]:
    """The powers of two below the largest batch, and that: a batch is filled up to one of them.

    >>> batch_sizes(12)
    (1, 2, 4, 8, 12)
    """
    powers = [2**power for power in range(largest.bit_length()) if 2**power < largest]
    return (*powers, largest)


def serve(
    arrivals: Sequence[float] | np.ndarray,
    answer: Answer,
    sizes: Sequence[int],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Serves requests in the order of their arrival.

    Args:
      arrivals: seconds after the start, ascending.
      answer: ``answer(size)`` computes a batch of that size, and returns when it is done.
      sizes: of the batches, ascending.
      clock, sleep: of the machine.

    Returns:
      The seconds from the arrival of each request to its answer.
    """
    arrivals = np.asarray(arrivals)
    latencies: list[float] = []
    start = clock()
    while len(latencies) < len(arrivals):
        first = len(latencies)
        if (wait := arrivals[first] - (clock() - start)) > 0:
            sleep(wait)
        now = max(clock() - start, arrivals[first])  # the clock may be slightly early
        waiting = int(np.searchsorted(arrivals, now, side="right")) - first
        count = min(waiting, sizes[-1])
        answer(next(size for size in sizes if size >= count))
        latencies += (clock() - start - arrivals[first : first + count]).tolist()
    return latencies


def highest_within(load: Sequence[Mapping[str, float]], limit: float) -> Mapping[str, float] | None:
    """The last row before the first whose 99th percentile of latency exceeds the limit.

    >>> rows = [{"rate": 1, "latency_p99": 0.1}, {"rate": 2, "latency_p99": 0.3}]
    >>> highest_within(rows, 0.2)
    {'rate': 1, 'latency_p99': 0.1}
    """
    best = None
    for row in load:
        if row["latency_p99"] > limit:
            break
        best = row
    return best


def _compile(
    predictor: Predictor, images: np.ndarray, sizes: Sequence[int], device: jax.Device
) -> Answer:
    """From images on the host to predictions on the host, for each size of a batch."""
    programs = {
        size: predictor.compile(jax.device_put(images[:size], device)).executable for size in sizes
    }

    def answer(size: int) -> np.ndarray:
        return np.asarray(programs[size](predictor.state, jax.device_put(images[:size], device)))

    for size in sizes:
        answer(size)
    return answer


def _capacity(answer: Answer, size: int) -> float:
    """Images per second if requests always wait: the median of some full batches."""
    seconds = []
    for _ in range(FULL_BATCHES):
        start = time.perf_counter()
        answer(size)
        seconds.append(time.perf_counter() - start)
    return size / float(np.median(seconds))


def _remark(
    load: Sequence[Mapping[str, float]], best: Mapping[str, float] | None, capacity: float
) -> str:
    limit = f"{LIMIT * 1e3:g} ms"
    if best is None:
        least = load[0]
        return (
            f"at {least['rate']:,.0f} requests per second the 99th percentile of latency is "
            f"{least['latency_p99'] * 1e3:.3g} ms already, above {limit}"
        )
    if best is load[-1]:
        return f"at all rates the 99th percentile of latency is within {limit}"
    after = load[list(load).index(best) + 1]
    return (
        f"the 99th percentile of latency exceeds {limit} between {best['rate']:,.0f} and "
        f"{after['rate']:,.0f} requests per second, {best['rate'] / capacity:.0%} and "
        f"{after['rate'] / capacity:.0%} of what full batches reach"
    )
