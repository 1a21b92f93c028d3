"""How one primitive operation is timed: on the device, copied to it, or against the host."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.harness.study import CaseResult
from experiments.measure.compiler import uses_winograd
from experiments.measure.energy import SECONDS, measure_energy
from experiments.measure.flops import compulsory_bytes, model_flops
from experiments.measure.noise import Comparison, compare
from experiments.measure.timing import Timing, compile_program, time_call, time_interleaved
from experiments.microbenchmarks import Kernel, copies
from experiments.microbenchmarks.in_place import compile_in_place
from experiments.microbenchmarks.kernel import PRECISIONS
from jaxcnn.parallel.options import compiler_options

# Seconds of sampling for each kernel; compiling and warming up take additional time.
BUDGETS = {"quick": 0.15, "full": 0.5}
ROUNDS = 7  # of the break-even, at each size
Operands = tuple[np.ndarray, ...]


def measure_kernel(
    kernel: Kernel,
    device: jax.Device,
    *,
    budget: float = BUDGETS["quick"],
    energy_seconds: float = SECONDS["quick"],
) -> CaseResult:
    """Times a kernel.

    Args:
      kernel: as from `microbenchmarks.select_kernels`.
      device: where it runs; for a copy, the source or the destination beside the host.
      budget: seconds of sampling.
      energy_seconds: seconds of further calls, where the power of the device can be measured.

    Returns:
      Metrics by the names of `METRICS`: always times; FLOPs, bytes and their rates where there are
      any. The figures of merit are added by `experiments.harness.figures_of_merit`.
    """
    operands = kernel.make_operands(np.random.default_rng(0))
    if measure_with_host := _HOST_MEASUREMENTS.get(kernel.measurement):
        result = measure_with_host(kernel, operands, device, budget)
    else:
        result = _time_program(kernel, operands, device, budget, energy_seconds)
    provenance = {
        "kernel": kernel.name,
        "group": kernel.group,
        "shape": kernel.shape,
        "dtype": kernel.dtype,
        "note": kernel.note,
        "precision": kernel.precision,
        "precision_means": PRECISIONS[kernel.precision],
        "lowering": kernel.lowering,
        "interpreted": kernel.lowering == "pallas, interpreted",
    }
    return CaseResult(result.metrics, result.samples, provenance=provenance | result.provenance)


def _time_program(
    kernel: Kernel,
    operands: Operands,
    device: jax.Device,
    budget: float,
    energy_seconds: float,
) -> CaseResult:
    """Times a compiled function whose operands lie on the device."""
    arrays = jax.device_put(operands, device)
    options = compiler_options(device.platform) if kernel.lowering == "ours" else {}
    if kernel.measurement == "into":
        program = compile_in_place(kernel.function, *arrays)
    else:
        program = compile_program(kernel.function, *arrays, compiler_options=options)
    timing = time_call(program.call, budget=budget)
    flops = model_flops(kernel.function, *arrays) if kernel.flops is None else kernel.flops
    moved_bytes = compulsory_bytes(kernel.function, *arrays)
    metrics = _times(timing) | _rates(timing.median, flops, moved_bytes) | program.metrics
    metrics |= {"first_step_time": timing.first} | _error(kernel, operands, program.call())
    provenance = {"compiler_options": options, "winograd": uses_winograd(program.executable)}
    if energy := measure_energy(
        program.call, [device], calls=timing.calls_per_sample, seconds=energy_seconds
    ):
        metrics |= energy.metrics
        provenance |= {"power_source": energy.source}
    return _result(timing, metrics, provenance)


def _time_copy(kernel: Kernel, operands: Operands, device: jax.Device, budget: float) -> CaseResult:
    (operand,) = operands
    if kernel.measurement == "copy_in":
        call = functools.partial(kernel.function, operand, device)
    else:
        call = functools.partial(kernel.function, jax.device_put(operand, device))
    timing = time_call(call, budget=budget)
    return _result(timing, _times(timing) | _rates(timing.median, 0, operand.nbytes), {})


def _find_break_even(
    kernel: Kernel, operands: Operands, device: jax.Device, budget: float
) -> CaseResult:
    """Times, in turn, NumPy on the host; and copy in, product on the device and copy out."""
    rows: list[dict[str, float]] = []
    samples: dict[str, list[float]] = {}
    for pair in zip(operands[::2], operands[1::2], strict=True):
        size = len(pair[0])
        calls = _host_and_device_calls(kernel.function, pair, device)
        timings = time_interleaved(calls, ROUNDS, warm_up=budget / len(operands))
        host, on_device = timings["host"], timings["device"]
        comparison = compare(on_device.samples, host.samples, paired=True)
        rows.append(
            {
                "size": size,
                "host_time": host.median,
                "device_time": on_device.median,
                "device_wins": wins(comparison),
            }
        )
        samples[f"host_time_{size}"] = list(host.samples)
        samples[f"device_time_{size}"] = list(on_device.samples)
    first_size = break_even(
        [row["size"] for row in rows], [bool(row["device_wins"]) for row in rows]
    )
    provenance = {"break_even": rows, "remarks": [_break_even_remark(first_size, rows[-1]["size"])]}
    metrics = {} if first_size is None else {"break_even_size": first_size}
    return CaseResult(metrics, samples, provenance=provenance)


def _host_and_device_calls(
    function: Callable[..., Any], pair: Operands, device: jax.Device
) -> dict[str, Callable[[], Any]]:
    program = compile_program(function, *jax.device_put(pair, device)).executable

    def on_device() -> np.ndarray:
        return copies.copy_out(program(*(copies.copy_in(operand, device) for operand in pair)))

    return {"host": lambda: pair[0] @ pair[1], "device": on_device}


def _break_even_remark(size: float | None, largest: float) -> str:
    result = (
        f"the copy to the device pays from {size} rows on"
        if size
        else f"the copy to the device does not pay, up to {largest} rows"
    )
    return f"square matrix product, NumPy compared with copy in, product and copy out: {result}"


_HOST_MEASUREMENTS: dict[str, Callable[..., CaseResult]] = {
    "copy_in": _time_copy,
    "copy_out": _time_copy,
    "break_even": _find_break_even,
}


def wins(comparison: Comparison) -> bool:
    """Whether ours takes less time than theirs, by more than the noise."""
    return comparison.different and comparison.ratio < 1


def break_even(sizes: list[float], won: list[bool]) -> float | None:
    """The size from which on all sizes won; None if the last one did not.

    >>> break_even([16, 32, 64, 128], [False, True, False, True])
    128
    """
    losses = [index for index, has_won in enumerate(won) if not has_won]
    first = losses[-1] + 1 if losses else 0
    return sizes[first] if first < len(sizes) else None


def _times(timing: Timing) -> dict[str, float]:
    low, high = timing.interval
    return {
        "call_time": timing.median,
        "call_time_low": low,
        "call_time_high": high,
        "call_latency": timing.latency,
    }


def _rates(seconds: float, flops: int, moved_bytes: int) -> dict[str, float]:
    """Only products and convolutions count as FLOPs; without them there is no such metric."""
    rates = {"bytes_per_call": moved_bytes, "bytes_per_second": moved_bytes / seconds}
    if flops:
        rates |= {"flops_per_call": flops, "flops_per_second": flops / seconds}
    return rates


def _error(kernel: Kernel, operands: Operands, result: Any) -> dict[str, float]:
    """The largest difference from float64 over the largest value, of the rows of the reference."""
    if kernel.reference is None:
        return {}
    expected = kernel.reference(*(operand.astype(np.float64) for operand in operands))
    computed = np.asarray(jax.tree.leaves(result)[0]).astype(np.float64)[: len(expected)]
    return {"largest_error": float(np.max(np.abs(computed - expected)) / np.max(np.abs(expected)))}


def _result(timing: Timing, metrics: dict[str, float], provenance: dict[str, Any]) -> CaseResult:
    noise = {
        "noise": timing.noise.verdict,
        "warm_up_samples": len(timing.warm_up),
        "calls_per_sample": timing.calls_per_sample,
    }
    samples = {"call_time": list(timing.samples)}
    return CaseResult(metrics, samples, provenance=noise | provenance)
