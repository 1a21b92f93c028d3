"""Times single kernels of this processor, from which `benchmarks.estimates` predicts whole steps.

Convolutions, products, pools and batch norm are timed one by one, each signature once. Fused
elementwise operations and reductions are not: two microbenchmarks give their rates, in bytes and in
instructions.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.preflight.operations import Operation
from jaxcnn.parallel.options import compiler_options

SAMPLES = 7
SHORTEST = 2e-3  # seconds of a sample: shorter calls are repeated
NEIGHBOURS = 3


@dataclass(frozen=True)
class TimedKernel:
    """A kernel that was timed.

    Attributes:
      family: operations of one family have the same primitive and layout.
      sizes: of its operands and its result, along all axes.
      flops, bytes: of one call.
      seconds: of one call.
    """

    family: str
    sizes: tuple[int, ...]
    flops: float
    bytes: float
    seconds: float


@dataclass
class KernelTimes:
    """Kernels of this processor, timed when they are first asked for.

    Attributes:
      rates: bytes and elementwise instructions per second of fused operations, by kind.
      known: timed kernels by signature.
    """

    rates: dict[str, tuple[float, float]]
    known: dict[str, TimedKernel] = field(default_factory=dict)

    def seconds(self, item: Operation) -> float:
        """Seconds of all the operation's kernels."""
        if item.equation is None:
            return self._fused(item)
        name = signature(item.equation)
        if name not in self.known:
            self.known[name] = _timed(item)
        return self.known[name].seconds * item.count

    def interpolated(self, item: Operation, without: set[str]) -> float:
        """The same, by the most similar kernels whose signatures are not in a set.

        Their seconds are scaled by the FLOPs, or the bytes of kernels that have none.
        """
        if item.equation is None:
            return self._fused(item)
        family, sizes = _family(item.equation), _sizes(item.equation)
        others = [
            kernel
            for name, kernel in self.known.items()
            if name not in without and kernel.family == family
        ]
        if not others:
            return self.seconds(item)
        nearest = sorted(others, key=lambda kernel: _distance(kernel.sizes, sizes))[:NEIGHBOURS]
        amount = item.flops or item.bytes
        per_unit = [kernel.seconds / (kernel.flops or kernel.bytes) for kernel in nearest]
        return amount * math.exp(statistics.fmean(map(math.log, per_unit)))

    def _fused(self, item: Operation) -> float:
        kind = item.kind if item.kind in self.rates else "elementwise"
        bytes_per_second, work_per_second = self.rates[kind]
        return max(item.bytes / bytes_per_second, item.work / work_per_second)


def signature(equation: Any) -> str:
    """What two kernels must have in common to take the same time."""
    return f"{_family(equation)} {_sizes(equation)} {_parameters(equation)}"


def measure_rates() -> dict[str, tuple[float, float]]:
    """Bytes and instructions per second of fused operations, by kind.

    Bytes by a sum of two arrays, instructions by a chain of 32 operations on one; of reductions by
    the mean and the mean square over all but the last axis.
    """
    size = 2**21
    a, b = (jnp.asarray(np.random.default_rng(i).normal(size=size), jnp.float32) for i in (0, 1))

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(16):
            x = x * x + 1.5
        return x

    def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x.sum((0, 1, 2)), (x * x).sum((0, 1, 2))

    images = a.reshape(32, 32, 32, -1)
    copied = time_call(jax.jit(lambda a, b: a + b), a, b)
    chained = time_call(jax.jit(chain), a)
    reduced = time_call(jax.jit(moments), images)
    return {
        "elementwise": (12 * size / copied, 32 * size / chained),
        "reduction": (4 * size / reduced, 3 * size / reduced),
    }


def time_call(function: Callable, *args: Any) -> float:
    """Seconds of a call, the shortest of several samples: what else runs only adds to it."""
    jax.block_until_ready(function(*args))
    start = time.perf_counter()
    jax.block_until_ready(function(*args))
    once = max(time.perf_counter() - start, 1e-7)
    repeats = max(1, round(SHORTEST / once))
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(repeats):
            result = function(*args)
        jax.block_until_ready(result)
        samples.append((time.perf_counter() - start) / repeats)
    return min(samples)


def _timed(item: Operation) -> TimedKernel:
    equation = item.equation

    def call(*args: jax.Array) -> Any:
        with equation.ctx.manager:
            return equation.primitive.bind(*args, **equation.params)

    jitted = jax.jit(call, compiler_options=compiler_options("cpu"))
    args = [_operand(place, var) for place, var in enumerate(equation.invars)]
    return TimedKernel(
        _family(equation),
        _sizes(equation),
        item.flops / item.count,
        item.bytes / item.count,
        time_call(jitted, *args),
    )


def _operand(place: int, variable: Any) -> jax.Array:
    if hasattr(variable, "val"):
        return jnp.asarray(variable.val)
    aval = variable.aval
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(place), aval.shape)
    values = np.random.default_rng(place).normal(size=aval.shape)
    is_float = jnp.issubdtype(aval.dtype, jnp.floating)
    return jnp.asarray(values if is_float else np.zeros(aval.shape), aval.dtype)


def _family(equation: Any) -> str:
    params = equation.params
    layout = params.get("dimension_numbers", "")
    is_grouped = max(params.get("feature_group_count", 1), params.get("batch_group_count", 1)) > 1
    return f"{equation.primitive.name} {layout} {is_grouped}"


def _sizes(equation: Any) -> tuple[int, ...]:
    variables = (*equation.invars, *equation.outvars)
    sizes = [size for variable in variables for size in getattr(variable.aval, "shape", ())]
    strides = equation.params.get("window_strides") or ()
    return (*sizes, *strides)


def _parameters(equation: Any) -> str:
    names = ("padding", "window_dimensions", "lhs_dilation", "rhs_dilation")
    names += ("feature_group_count", "batch_group_count", "axes")
    dtypes = [str(getattr(v.aval, "dtype", "")) for v in equation.invars]
    values = [str(equation.params[name]) for name in names if name in equation.params]
    return " ".join([*values, *dtypes])


def _distance(one: Sequence[int], other: Sequence[int]) -> float:
    if len(one) != len(other):
        return math.inf
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True))
