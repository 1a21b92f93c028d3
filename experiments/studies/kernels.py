"""The primitives one by one: how long does each take, and how much of what the device can do is that?"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments import microbenchmarks
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import bytes_once, model_flops
from experiments.measure.timing import Comparison, Timing, compare, compiled, interleaved, timed
from experiments.microbenchmarks import Kernel, copies
from experiments.microbenchmarks.kernel import PRECISIONS
from experiments.microbenchmarks.peak import compiled_into
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known
from jaxcnn.parallel.options import compiler_options

BUDGETS = {
    "quick": 0.15,
    "full": 0.5,
}  # seconds of sampling a kernel; compiling and warming up come on top
ROUNDS = 7  # of the break-even, at each size
COLUMNS = (
    "call_time", "flops_per_second", "bytes_per_second", "roofline_share", "mfu", "mfu_measured_peak", "flops_per_dollar",
    "flops_per_joule", "flops_per_joule_data_sheet", "break_even_size", "largest_error", "arithmetic_intensity",
)  # fmt: skip


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each kernel of the preset.

    Raises:
      InputError: an unknown preset or precision.
    """
    require_known("precision", config.precision, training.PRECISIONS)
    return [
        _case(kernel, config) for kernel in microbenchmarks.cases(config.preset, backend.platform)
    ]


def _case(kernel: Kernel, config: RunConfig) -> Case:
    settings = {"kernel": kernel.name, "preset": config.preset}
    settings |= {name: getattr(kernel, name) for name in ("group", "shape", "dtype", "lowering")}
    return Case(
        config.replace(precision=kernel.dtype),
        settings | {"product_precision": kernel.precision},
        (kernel.name,),
    )


def has_figures_of_merit(case: Case, backend: Backend) -> bool:
    """False for copies between host and device, whose roofline is not the device's."""
    return _kernel(case, backend).how not in ("copy_in", "copy_out")


def _kernel(case: Case, backend: Backend) -> Kernel:
    kernels = microbenchmarks.cases("full", backend.platform)
    return next(kernel for kernel in kernels if kernel.name == case.settings["kernel"])


def measure(case: Case, context: Context) -> CaseResult:
    """Times one kernel on the first of the devices."""
    kernel, device = _kernel(case, context.backend), context.backend.devices[0]
    return measure_kernel(kernel, device, budget=BUDGETS[case.config.preset])


def measure_kernel(
    kernel: Kernel, device: jax.Device, *, budget: float = BUDGETS["quick"]
) -> CaseResult:
    """Times a kernel.

    Args:
      kernel: one of `experiments.microbenchmarks.cases`.
      device: where it runs, or between which and the host the copy goes.
      budget: seconds of sampling.

    Returns:
      Metrics by the names of `METRICS`: times always, FLOPs and bytes and their rates where there are any. What they are worth
      is `experiments.harness.figures_of_merit`' business; the roofline of a copy is not the device's, and its provenance says so.
    """
    operands = kernel.make(np.random.default_rng(0))
    found = MEASURES[kernel.how](kernel, operands, device, budget)
    told = {
        "kernel": kernel.name,
        "group": kernel.group,
        "shape": kernel.shape,
        "dtype": kernel.dtype,
        "note": kernel.note,
    }
    told |= {
        "precision": kernel.precision,
        "precision_means": PRECISIONS[kernel.precision],
        "lowering": kernel.lowering,
    }
    told |= {"interpreted": kernel.lowering == "pallas, interpreted"}
    return CaseResult(found.metrics, found.samples, provenance=told | found.provenance)


def _call(
    kernel: Kernel, operands: tuple[np.ndarray, ...], device: jax.Device, budget: float
) -> CaseResult:
    """A compiled function, its operands on the device."""
    args = jax.device_put(operands, device)
    options = compiler_options(device.platform) if kernel.lowering == "ours" else {}
    into = kernel.how == "into"
    program = (
        compiled_into(kernel.function, *args)
        if into
        else compiled(kernel.function, *args, compiler_options=options)
    )
    timing = timed(program.call, budget=budget)
    flops = model_flops(kernel.function, *args) if kernel.flops is None else kernel.flops
    metrics = _times(timing) | _rates(timing.median, flops, bytes_once(kernel.function, *args))
    metrics |= program.metrics | {"first_step_time": timing.first}
    metrics |= _error(kernel, operands, program.call())
    return _measured(timing, metrics, {"compiler_options": options})


def _copy_in(
    kernel: Kernel, operands: tuple[np.ndarray, ...], device: jax.Device, budget: float
) -> CaseResult:
    return _copied(operands[0], functools.partial(kernel.function, operands[0], device), budget)


def _copy_out(
    kernel: Kernel, operands: tuple[np.ndarray, ...], device: jax.Device, budget: float
) -> CaseResult:
    return _copied(
        operands[0], functools.partial(kernel.function, jax.device_put(operands[0], device)), budget
    )


def _copied(operand: np.ndarray, call: Callable[[], Any], budget: float) -> CaseResult:
    timing = timed(call, budget=budget)
    return _measured(timing, _times(timing) | _rates(timing.median, 0, operand.nbytes), {})


def _break_even(
    kernel: Kernel, operands: tuple[np.ndarray, ...], device: jax.Device, budget: float
) -> CaseResult:
    """NumPy on the host and, in turn with it, copy in, product on the device and copy out."""
    rows: list[dict[str, float]] = []
    samples: dict[str, list[float]] = {}
    for pair in zip(operands[::2], operands[1::2], strict=True):
        side = len(pair[0])
        timings = interleaved(
            _sides(kernel.function, pair, device), ROUNDS, warm_up=budget / len(operands)
        )
        host, there = timings["host"], timings["device"]
        rows.append({"size": side, "host_time": host.median, "device_time": there.median})
        samples |= {
            f"host_time_{side}": list(host.samples),
            f"device_time_{side}": list(there.samples),
        }
        rows[-1]["device_wins"] = wins(compare(there.samples, host.samples, paired=True))
    size = break_even([row["size"] for row in rows], [bool(row["device_wins"]) for row in rows])
    told = (
        f"the copy to the device pays from {size} rows on"
        if size
        else f"the copy never pays, up to {rows[-1]['size']} rows"
    )
    remarks = [f"square matrix product, NumPy against copy in, product and copy out: {told}"]
    metrics = {} if size is None else {"break_even_size": size}
    return CaseResult(metrics, samples, provenance={"break_even": rows, "remarks": remarks})


def _sides(
    function: Callable[..., Any], pair: tuple[np.ndarray, ...], device: jax.Device
) -> dict[str, Callable[[], Any]]:
    program = compiled(function, *jax.device_put(pair, device)).executable

    def on_device() -> np.ndarray:
        return copies.copy_out(program(*(copies.copy_in(operand, device) for operand in pair)))

    return {"host": lambda: pair[0] @ pair[1], "device": on_device}


MEASURES: dict[str, Callable[..., CaseResult]] = {
    "call": _call,
    "into": _call,
    "copy_in": _copy_in,
    "copy_out": _copy_out,
    "break_even": _break_even,
}


def wins(comparison: Comparison) -> bool:
    """Whether ours takes less time, by more than the noise."""
    return comparison.different and comparison.ratio < 1


def break_even(sizes: list[float], won: list[bool]) -> float | None:
    """The size from which on all that were tried won; None where the last did not.

    >>> break_even([16, 32, 64, 128], [False, True, False, True])
    128
    """
    losses = [index for index, so in enumerate(won) if not so]
    first = losses[-1] + 1 if losses else 0
    return sizes[first] if first < len(sizes) else None


def _times(timing: Timing) -> dict[str, float]:
    low, high = timing.interval
    return {"call_time": timing.median, "call_time_low": low, "call_time_high": high}


def _rates(seconds: float, flops: int, moved: int) -> dict[str, float]:
    """FLOPs are absent where there is no product and no convolution: nothing else is counted."""
    rates = {"bytes_per_call": moved, "bytes_per_second": moved / seconds}
    if flops:
        rates |= {"flops_per_call": flops, "flops_per_second": flops / seconds}
    return rates


def _error(kernel: Kernel, operands: tuple[np.ndarray, ...], result: Any) -> dict[str, float]:
    """Largest difference from float64 over the largest value, of the rows that the reference has."""
    if kernel.reference is None:
        return {}
    expected = kernel.reference(*(operand.astype(np.float64) for operand in operands))
    found = np.asarray(jax.tree.leaves(result)[0]).astype(np.float64)[: len(expected)]
    return {"largest_error": float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))}


def _measured(timing: Timing, metrics: dict[str, float], told: dict[str, Any]) -> CaseResult:
    noise = {
        "noise": timing.noise.verdict,
        "warm_up_samples": len(timing.warm_up),
        "calls_per_sample": timing.calls_per_sample,
    }
    return CaseResult(metrics, {"call_time": list(timing.samples)}, provenance=noise | told)
