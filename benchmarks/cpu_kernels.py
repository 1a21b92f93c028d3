"""Times single kernels of this processor, from which `benchmarks.estimates` predicts whole steps.

Convolutions, products, pools, batch norm, and each chain of fused elementwise operations and
reductions are timed one by one, each signature once. Where a step is predicted without its own
kernels, two microbenchmarks give the rates of the fused ones, in bytes and in instructions.
"""

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.preflight.operation import Operation
from jaxcnn.parallel.options import compiler_options

SAMPLES = 7
SHORTEST = 2e-3  # seconds of a sample: shorter calls are repeated
WORKING_SET = 2**28  # bytes
MAX_COPIES = 64
SHORTEST_KERNEL = 1e-7  # seconds
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
      working_set: bytes of the different arrays that are operands in turn.
    """

    rates: dict[str, tuple[float, float]]
    known: dict[str, TimedKernel] = field(default_factory=dict)
    working_set: int = WORKING_SET

    def seconds(self, item: Operation) -> float:
        """Seconds of all the operation's kernels."""
        name = signature(item)
        if name not in self.known:
            self.known[name] = _timed(item, self.working_set)
        return self.known[name].seconds * item.count

    def interpolated(self, item: Operation, without: Collection[str]) -> float:
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


def signature(item: Operation) -> str:
    """What two kernels must have in common to take the same time."""
    if item.fusion is not None:
        return item.fusion.signature
    equation = item.equation
    return f"{_family(equation)} {_sizes(equation)} {_parameters(equation)}"


def measure_rates() -> dict[str, tuple[float, float]]:
    """Bytes and instructions per second of fused operations, by kind.

    Bytes by a sum of two arrays, instructions by a chain of 32 operations on one; of reductions by
    the mean and the mean square over all but the last axis.
    """
    size = 2**23  # 32 MB: more than caches keep
    a, b = (jnp.asarray(np.random.default_rng(i).normal(size=size), jnp.float32) for i in (0, 1))

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(16):
            x = x * x + 1.5
        return x

    def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x.sum((0, 1, 2)), (x * x).sum((0, 1, 2))

    images = a.reshape(32, 64, 64, -1)
    copied = time_call(jax.jit(lambda a, b: a + b), a, b)
    chained = time_call(jax.jit(chain), a)
    reduced = time_call(jax.jit(moments), images)
    return {
        "elementwise": (12 * size / copied, 32 * size / chained),
        "reduction": (4 * size / reduced, 3 * size / reduced),
    }


def time_call(function: Callable, *args: Any, working_set: int = WORKING_SET) -> float:
    """Seconds of a call, the shortest of several samples: what else runs only adds to it.

    The operands of consecutive calls are different arrays, as those of consecutive kernels of a
    step are, so that caches hold no more of them than in a step that has as many bytes in memory.
    """
    size = max(1, sum(arg.nbytes for arg in args))
    copies = min(MAX_COPIES, math.ceil(working_set / size))
    operands = itertools.cycle([args, *([jnp.copy(a) for a in args] for _ in range(copies - 1))])
    for _ in range(copies + 1):
        start = time.perf_counter()
        jax.block_until_ready(function(*next(operands)))
        once = max(time.perf_counter() - start, 1e-7)
    repeats = max(1, round(SHORTEST / once))
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(repeats):
            result = function(*next(operands))
        jax.block_until_ready(result)
        samples.append((time.perf_counter() - start) / repeats)
    return min(samples)


def _timed(item: Operation, working_set: int) -> TimedKernel:
    if item.fusion is not None:
        call, family, sizes = item.fusion.function(), "fusion", ()
        args = [_operand(place, value) for place, value in enumerate(item.fusion.operands)]
    else:
        call, family, sizes = _single(item.equation), _family(item.equation), _sizes(item.equation)
        args = [_argument(place, var) for place, var in enumerate(item.equation.invars)]
    jitted = jax.jit(call, compiler_options=compiler_options("cpu"))
    seconds = time_call(jitted, *args, working_set=working_set)
    seconds = max(seconds - _dispatch(), SHORTEST_KERNEL)
    return TimedKernel(family, sizes, item.flops / item.count, item.bytes / item.count, seconds)


@functools.cache
def _dispatch() -> float:
    """Seconds of a call that computes next to nothing; a kernel of a step is not called so."""
    return time_call(jax.jit(lambda x: x + 1), jnp.zeros(()))


def _single(equation: Any) -> Callable[..., Any]:
    def call(*args: jax.Array) -> Any:
        with equation.ctx.manager:
            return equation.primitive.bind(*args, **equation.params)

    return call


def _argument(place: int, variable: Any) -> jax.Array:
    return jnp.asarray(variable.val) if hasattr(variable, "val") else _operand(place, variable.aval)


def _operand(place: int, array: Any) -> jax.Array:
    """Noise; zeros if it is not of floating-point numbers."""
    if str(array.dtype).startswith("key<"):
        return jax.random.split(jax.random.key(place), array.shape)
    values = np.random.default_rng(place).normal(size=array.shape)
    is_float = jnp.issubdtype(jnp.dtype(array.dtype), jnp.floating)
    return jnp.asarray(values if is_float else np.zeros(array.shape), array.dtype)


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
