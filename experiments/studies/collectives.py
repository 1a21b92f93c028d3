"""How fast devices exchange data: the bandwidth of collective operations by size.

All devices of the run form one axis. A size is that of the whole result of a gathering, of the
whole input of a scattering, and of the array that every device has in an all-reduce, as in NVIDIA's
nccl-tests (PERFORMANCE.md there), which also defines the bus bandwidth: the algorithm's bandwidth
times 2·(n - 1)/n or (n - 1)/n, so that rings of different numbers of devices can be compared with
the bandwidth of a link.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.timing import compile_program, time_call
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

AXIS = "devices"
SIZES = {  # bytes
    "quick": (2**16, 2**20, 2**24),
    "full": tuple(2**power for power in range(10, 29, 2)),
}
BUDGETS = {"quick": 0.2, "full": 1.0}  # seconds of sampling
TOLERANCE = 1e-6  # relative, of sums of float32
COLUMNS = ("call_time", "call_latency", "bytes_per_second", "bus_bandwidth", "largest_error")


@dataclass(frozen=True)
class Collective:
    """A collective operation on arrays of one axis.

    Attributes:
      function: of a device's share, inside `jax.shard_map`.
      expected: of the whole input ``f32[n, size]``, a row for each device: the result, as
        `function` returns it, of all devices one after the other.
      is_shared: whether the array of a device has an nth of the size.
      traffic: ``traffic(n)``: bytes over a device's link, divided by the size.
    """

    function: Callable[[Array], Array]
    expected: Callable[[np.ndarray], np.ndarray]
    is_shared: bool
    traffic: Callable[[int], float]


OPERATIONS = {
    "all_reduce": Collective(
        lambda x: lax.psum(x, AXIS),
        lambda rows: np.tile(rows.sum(axis=0), len(rows)),
        is_shared=False,
        traffic=lambda n: 2 * (n - 1) / n,
    ),
    "all_gather": Collective(
        lambda x: lax.all_gather(x, AXIS, tiled=True),
        lambda rows: np.tile(rows.ravel(), len(rows)),
        is_shared=True,
        traffic=lambda n: (n - 1) / n,
    ),
    "reduce_scatter": Collective(
        lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        lambda rows: rows.sum(axis=0),
        is_shared=False,
        traffic=lambda n: (n - 1) / n,
    ),
}


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each operation and size.

    Raises:
      InputError: there is only one device.
    """
    count = len(backend.devices)
    if count == 1:
        raise InputError(
            "--study=collectives needs several devices, and there is one; --device=cpu:4 simulates "
            "four, which tests results and no speeds"
        )
    return [
        Case(
            config.replace(precision="float32"),
            {"operation": name, "bytes": size, "devices_used": count},
            (name, f"x{count}", f"{size}B"),
        )
        for name in OPERATIONS
        for size in SIZES[config.preset]
    ]


def has_figures_of_merit(case: Case, backend: Backend) -> bool:
    """A collective computes nothing to speak of."""
    return False


def measure(case: Case, context: Context) -> CaseResult:
    """Checks the result of an operation and, on real devices, times it."""
    backend = context.backend
    operation, size = OPERATIONS[case.settings["operation"]], case.settings["bytes"]
    count = len(backend.devices)
    mesh = Mesh(np.array(backend.devices), (AXIS,))
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    share = size // 4 // (count if operation.is_shared else 1)
    share = max(share // count, 1) * count  # also what is scattered divides
    rows = np.random.default_rng(0).standard_normal((count, share), np.float32)
    array = jax.device_put(rows.ravel(), sharding)
    function = jax.shard_map(
        operation.function,
        mesh=mesh,
        in_specs=PartitionSpec(AXIS),
        out_specs=PartitionSpec(AXIS),
        check_vma=False,
    )
    program = compile_program(function, array)
    metrics = {"largest_error": _error(program.call(), operation.expected(rows))}
    if not metrics["largest_error"] <= TOLERANCE * count:
        error = f"the result differs from NumPy's by {metrics['largest_error']:.2g} of its largest"
        return CaseResult(metrics, status="failed", message=error)
    metrics |= program.metrics
    provenance = {"strategy_devices": count, "share_bytes": 4 * share}
    if backend.simulated:
        return CaseResult(metrics, provenance=provenance)
    timing = time_call(program.call, budget=BUDGETS[case.config.preset])
    low, high = timing.interval
    moved = 4 * share * (count if operation.is_shared else 1)
    rate = moved / timing.median
    metrics |= {
        "call_time": timing.median,
        "call_time_low": low,
        "call_time_high": high,
        "call_latency": timing.latency,
        "bytes_per_second": rate,
        "bus_bandwidth": rate * operation.traffic(count),
    }
    noise = {"noise": timing.noise.verdict, "calls_per_sample": timing.calls_per_sample}
    samples = {"call_time": list(timing.samples)}
    return CaseResult(metrics, samples, provenance=provenance | noise)


def _error(result: Array, expected: np.ndarray) -> float:
    """The largest difference, divided by the largest value."""
    difference = np.abs(np.asarray(result, np.float64) - expected)
    return float(np.max(difference) / np.max(np.abs(expected)))
