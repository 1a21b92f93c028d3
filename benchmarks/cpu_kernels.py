"""Times single kernels of this processor, from which `benchmarks.estimates` predicts whole steps.

Convolutions, products, pools, batch norm, and each chain of fused elementwise operations and
reductions are timed one by one, each signature once. Where a step is predicted without its own
kernels, those of other networks say how far such kernels are from their rooflines, for which
microbenchmarks give the rates of memory and of instructions.
"""

import collections
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.preflight.operation import Operation
from jaxcnn.parallel.options import compiler_options

ROUNDS = 6
SAMPLES = 2  # of each kernel in a round
SHORTEST = 2e-3  # seconds of a sample: shorter calls are repeated
WORKING_SET = 2**26  # bytes: twice what the caches of the published machines keep
MAX_COPIES = 64
MOST = 0.95  # of the time: the part of the kernels that are sampled in all rounds
SHORTEST_KERNEL = 1e-7  # seconds
NEIGHBORS = 5
SAME_SIZE = 0.5  # the distance at which a kernel has half the weight of one of the same size
LONG_ENOUGH = 1e-4  # seconds of a kernel whose rate is not that of a cache
_FUSION = "fusion"
# What calls of a primitive differ in besides their sizes.
_PARAMETERS = (
    "padding",
    "window_dimensions",
    "lhs_dilation",
    "rhs_dilation",
    "feature_group_count",
    "batch_group_count",
    "axes",
)
_DISPATCH = "dispatch"  # a call that computes next to nothing; a kernel of a step is not called so


@dataclass(frozen=True)
class TimedKernel:
    """A kernel that was timed.

    Attributes:
      family: operations of one family have the same primitive and layout.
      sizes: of its operands and its result, along all axes; of fused operations their bytes and
        instructions.
      kind: of the operation, see `Operation`.
      flops, bytes, work: of one call.
      seconds: of one call.
    """

    family: str
    sizes: tuple[float, ...]
    kind: str
    flops: float
    bytes: float
    work: float
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
            self.time([item])
        return self.known[name].seconds * item.count

    def time(self, items: Collection[Operation]) -> None:
        """Times those kernels of the operations that are not known.

        What else runs on the processor slows it down for a while, so that the samples of a kernel
        are taken in rounds, far apart, and the shortest is of a quiet moment. After the first
        round only the kernels that take nearly all of the time are sampled.
        """
        counts: collections.Counter[str] = collections.Counter()
        for item in items:
            counts[signature(item)] += item.count
        new = {name: item for item in items if (name := signature(item)) not in self.known}
        calls = {name: _call(item) for name, item in new.items()}
        calls[_DISPATCH] = jax.jit(lambda x: x + 1), [jnp.zeros(())]
        seconds = dict.fromkeys(calls, math.inf)
        names = [*calls]
        for _ in range(ROUNDS):
            for name in names:
                sample = time_call(*calls[name], self.working_set)
                seconds[name] = min(seconds[name], sample)
            names = [_DISPATCH, *_most({name: seconds[name] * counts[name] for name in new})]
        for name, item in new.items():
            alone = max(seconds[name] - seconds[_DISPATCH], SHORTEST_KERNEL)
            self.known[name] = kernel_of(item, alone)

    def interpolated(self, item: Operation, without: Collection[str]) -> float:
        """The same, by the most similar kernels whose signatures are not in a set.

        The kernel is taken to be as far from its roofline as they are from theirs, the more similar
        ones with more weight. Fused operations unlike any other take the time of their roofline; a
        single operation of a family that no other kernel has is timed.
        """
        others = [kernel for name, kernel in self.known.items() if name not in without]
        family, sizes = _family(item), _sizes(item)
        similar = [
            (_distance(kernel.sizes, sizes), kernel)
            for kernel in others
            if kernel.family == family and len(kernel.sizes) == len(sizes)
        ]
        if not similar and item.equation is not None:
            return self.seconds(item)
        rates = [k.flops / k.seconds for k in others if k.flops and k.seconds > LONG_ENOUGH]
        peak = max(rates, default=math.inf)
        nearest = sorted(similar, key=lambda entry: entry[0])[:NEIGHBORS]
        weights = [1 / (SAME_SIZE + distance) for distance, _ in nearest]
        roofline = self._roofline(kernel_of(item), peak) * item.count
        if not similar:
            return roofline
        ratios = [math.log(k.seconds / self._roofline(k, peak)) for _, k in nearest]
        return roofline * math.exp(statistics.fmean(ratios, weights))

    def _roofline(self, kernel: TimedKernel, peak: float) -> float:
        """Seconds by the rates of memory and arithmetic; `peak` is the best of any kernel."""
        bytes_per_second, work_per_second = self.rates.get(kernel.kind, self.rates["elementwise"])
        if kernel.family.startswith(_FUSION):
            return max(kernel.bytes / bytes_per_second, kernel.work / work_per_second)
        return kernel.bytes / self.rates["elementwise"][0] + kernel.flops / peak


def _most(amounts: Mapping[str, float]) -> list[str]:
    """Names of the largest amounts, which together are `MOST` of the sum.

    >>> _most({"a": 1.0, "b": 90.0, "c": 9.0})
    ['b', 'c']
    """
    names = sorted(amounts, key=lambda name: -amounts[name])
    sums = itertools.accumulate(amounts[name] for name in names)
    limit = MOST * sum(amounts.values())
    return names[: 1 + sum(total < limit for total in sums)]


def signature(item: Operation) -> str:
    """What two kernels must have in common to take the same time."""
    if item.fusion is not None:
        return item.fusion.signature
    return f"{_family(item)} {_sizes(item)} {_parameters(item.equation)}"


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
    calls = (
        (jax.jit(lambda a, b: a + b), [a, b]),
        (jax.jit(chain), [a]),
        (jax.jit(moments), [images]),
    )
    rounds = [[time_call(*call) for call in calls] for _ in range(ROUNDS)]
    copied, chained, reduced = (min(samples) for samples in zip(*rounds, strict=True))
    return {
        "elementwise": (12 * size / copied, 32 * size / chained),
        "reduction": (4 * size / reduced, 3 * size / reduced),
    }


def time_call(
    function: Callable, operands: Sequence[jax.Array], working_set: int = WORKING_SET
) -> float:
    """Seconds of a call, the shortest of several samples: what else runs only adds to it.

    The operands of consecutive calls are different arrays, as those of consecutive kernels of a
    step are, so that caches hold no more of them than in a step that has as many bytes in memory.
    """
    size = max(1, sum(operand.nbytes for operand in operands))
    copies = min(MAX_COPIES, math.ceil(working_set / size))
    sets = [operands, *([jnp.copy(operand) for operand in operands] for _ in range(copies - 1))]
    in_turn = itertools.cycle(sets)
    for _ in range(copies + 1):
        start = time.perf_counter()
        jax.block_until_ready(function(*next(in_turn)))
        once = max(time.perf_counter() - start, 1e-7)
    repeats = max(1, round(SHORTEST / once))
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(repeats):
            result = function(*next(in_turn))
        jax.block_until_ready(result)
        samples.append((time.perf_counter() - start) / repeats)
    return min(samples)


def _call(item: Operation) -> tuple[Callable[..., Any], list[jax.Array]]:
    """A kernel as a function, and its operands."""
    if item.fusion is not None:
        function = item.fusion.function()
        operands = [_operand(*entry) for entry in enumerate(item.fusion.operands)]
    else:
        function = _single(item.equation)
        operands = [_argument(*entry) for entry in enumerate(item.equation.invars)]
    return jax.jit(function, compiler_options=compiler_options("cpu")), operands


def kernel_of(item: Operation, seconds: float = math.nan) -> TimedKernel:
    """One of the kernels of an operation, of which a call takes so many seconds."""
    flops, bytes_, work = (amount / item.count for amount in (item.flops, item.bytes, item.work))
    return TimedKernel(_family(item), _sizes(item), item.kind, flops, bytes_, work, seconds)


def _single(equation: Any) -> Callable[..., Any]:
    def call(*args: jax.Array) -> Any:
        with equation.ctx.manager:
            return equation.primitive.bind(*args, **equation.params)

    return call


def _argument(place: int, variable: Any) -> jax.Array:
    return jnp.asarray(variable.val) if hasattr(variable, "val") else _operand(place, variable.aval)


def _operand(place: int, array: Any) -> jax.Array:
    return _noise(place, array.shape, str(array.dtype))


@functools.cache
def _noise(seed: int, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """Noise; zeros if it is not of floating-point numbers. Kernels share it."""
    if dtype.startswith("key<"):
        return jax.random.split(jax.random.key(seed), shape)
    is_float = jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
    values = np.random.default_rng(seed).normal(size=shape) if is_float else np.zeros(shape)
    return jnp.asarray(values, dtype)


def _family(item: Operation) -> str:
    if item.equation is None:
        return f"{_FUSION} {item.kind}"
    params = item.equation.params
    layout = params.get("dimension_numbers", "")
    return f"{item.equation.primitive.name} {layout} {_grouping(item.equation)}"


def _grouping(equation: Any) -> str:
    """Whether a convolution has groups, and of more than one channel."""
    params = equation.params
    images, kernel = params.get("feature_group_count", 1), params.get("batch_group_count", 1)
    if max(images, kernel) == 1:
        return ""
    numbers = params["dimension_numbers"]
    inputs, weights = (variable.aval.shape for variable in equation.invars[:2])
    if images > 1:
        return "depthwise" if weights[numbers.rhs_spec[1]] == 1 else "grouped"
    return "depthwise" if inputs[numbers.lhs_spec[0]] == kernel else "grouped"


def _sizes(item: Operation) -> tuple[float, ...]:
    if item.equation is None:
        return item.bytes / item.count, item.work / item.count
    variables = (*item.equation.invars, *item.equation.outvars)
    sizes = [size for variable in variables for size in getattr(variable.aval, "shape", ())]
    strides = item.equation.params.get("window_strides") or ()
    return (*sizes, *strides)


def _parameters(equation: Any) -> str:
    dtypes = [str(getattr(v.aval, "dtype", "")) for v in equation.invars]
    values = [str(equation.params[name]) for name in _PARAMETERS if name in equation.params]
    return " ".join([*values, *dtypes])


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True))
