"""What the processor's instruction sets are worth: the same step for SSE4.2, AVX, AVX2 and AVX-512.

XLA:CPU reads the limit only from XLA_FLAGS and only when it starts, so that each instruction set
has a process of its own. (As a compiler option of a single program it is accepted and has no
effect, observed with JAX 0.10.2 and 0.12.0.) `jaxcnn.ops.native` gets the limit too, but other
libraries that XLA calls for matrix products and convolutions select their instructions at run time.
Two steps are therefore timed: that of the network, as a user runs it, and one without products, all
of whose loops XLA compiles.
"""

import os
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import RunConfig
from experiments.harness.isolation import measure_isolated
from experiments.harness.study import Case, CaseResult, Context, with_strategy
from experiments.measure.compiler import uses_winograd
from experiments.measure.timing import Timing, compile_program, time_call
from experiments.workloads import network, synthetic_step
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from jaxcnn.ops import native

COLUMNS = (
    "step_time",
    "loop_step_time",
    "images_per_second",
    "flops_per_second",
    "compile_time",
    "training_loss",
)
# The flags in /proc/cpuinfo that a processor with each instruction set has, oldest set first.
REQUIRED_FLAGS = {
    "SSE4_2": {"sse4_2"},
    "AVX": {"avx"},
    "AVX2": {"avx2", "fma"},
    "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
AVX512_WIDE = "AVX512, 512 bits"  # by default XLA uses only vectors of 256 bits
XLA_FLAGS = {name: f"--xla_cpu_max_isa={name}" for name in REQUIRED_FLAGS} | {
    AVX512_WIDE: "--xla_cpu_max_isa=AVX512 --xla_cpu_prefer_vector_width=512"
}
NATIVE_KERNELS = {  # of `jaxcnn.ops.native`
    "SSE4_2": "any",
    "AVX": "any",
    "AVX2": "avx2",
    "AVX512": "avx512",
    AVX512_WIDE: "avx512",
}
BUDGETS = {"quick": 0.5, "full": 3.0}  # seconds of sampling, for each of the two steps
QUICK_MODEL = "logistic"  # each process compiles anew, which takes long for a CNN
STEPS = 20  # whose losses are compared
LAYERS, ROWS, PIXELS = 4, 128, 4096  # of the step without products
ABOUT = (
    "the limit applies to what XLA compiles itself and to this package's kernels: {count} products "
    "and convolutions of the network's step are calls of libraries, others of which select their "
    "instructions themselves; the loop step has none"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each instruction set that the processor has.

    Raises:
      InputError: the device is not a CPU, or not an x86 CPU.
    """
    if backend.platform != "cpu":
        raise InputError(
            f"study 'isa' limits the code of XLA:CPU, and this is a {backend.platform}: "
            "use --device=cpu"
        )
    names = available(_cpu_flags())
    if not names:
        raise InputError(
            "study 'isa' compares x86 instruction sets, and /proc/cpuinfo lists none for this "
            "processor"
        )
    if config.preset == "full" and "AVX512" in names:
        names.append(AVX512_WIDE)
    if config.preset == "quick" and config.model == RunConfig.model:
        config = config.replace(model=QUICK_MODEL)
    defaults = {
        "batch_size": 64,
        "image_size": network.image_size(config),
        "optimizer": "adam",
        "learning_rate": 1e-3,
    }
    config = with_strategy(config.with_defaults(defaults).replace(strategy="jit"), backend)
    return [_case(config, name) for name in names]


def _case(config: RunConfig, name: str) -> Case:
    options = (
        "model",
        "precision",
        "strategy",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "seed",
    )
    settings = {"instruction_set": name} | {option: getattr(config, option) for option in options}
    settings |= synthetic_step.division(config) | network.noise_settings(config)
    return Case(config, settings, (config.model, name, config.precision, f"b{config.batch_size}"))


def available(flags: set[str]) -> list[str]:
    """The instruction sets of a processor with these flags, the oldest first.

    >>> available({"sse4_2", "avx", "avx2"})
    ['SSE4_2', 'AVX']
    """
    return [name for name, required in REQUIRED_FLAGS.items() if required <= flags]


def _cpu_flags() -> set[str]:
    """The flags of the first processor in /proc/cpuinfo; empty on other systems than Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(
        next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Times both steps in a process whose XLA is limited to the instruction set."""
    name = case.settings["instruction_set"]
    flags, limit = os.environ.get("XLA_FLAGS", "").split(), XLA_FLAGS[name].split()
    if flags[-len(limit) :] == limit:
        return _measure_here(case, context)
    variables = {"XLA_FLAGS": " ".join([*flags, *limit])}
    if native.instruction_set():
        variables[native.ENVIRONMENT_VARIABLE] = NATIVE_KERNELS[name]
    return measure_isolated(case, context, variables)


def _measure_here(case: Case, context: Context) -> CaseResult:
    budget = BUDGETS[case.config.preset]
    step = synthetic_step.build(case.config, context.backend)
    losses = [float(step()["loss"]) / step.batch_size for _ in range(STEPS)]
    metrics, timing = synthetic_step.time_step(step, budget=budget)
    loop_losses, loop_timing = _time_loop_step(context.backend.devices[0], budget, case.config.seed)
    library_calls = _count_library_calls(step.program.executable.as_text())
    return CaseResult(
        metrics
        | {"training_loss": losses[-1], "loop_step_time": loop_timing.median, "steps": STEPS},
        {
            "step_time": list(timing.samples),
            "loop_step_time": list(loop_timing.samples),
            "loss": losses,
            "loop_loss": loop_losses,
        },
        provenance={
            "xla_flags": os.environ["XLA_FLAGS"],
            "library_operations": library_calls,
            "noise": timing.noise.verdict,
            "strategy_devices": 1,
            "winograd": uses_winograd(step.program.executable),
            "remarks": [ABOUT.format(count=library_calls)],
        },
    )


def _count_library_calls(program: str) -> int:
    """The number of products and convolutions in the text of a compiled program."""
    return len(re.findall(rf"\b(?:dot|convolution)\(|{re.escape(native.CALL_PREFIX)}", program))


def _time_loop_step(device: jax.Device, budget: float, seed: int) -> tuple[list[float], Timing]:
    """The losses of the step without products, and its timing."""
    rng = np.random.default_rng(seed)
    arrays = (
        rng.normal(size=shape).astype(np.float32)
        for shape in [(LAYERS, 2, PIXELS), (ROWS, PIXELS), (ROWS, PIXELS)]
    )
    parameters, x, y = jax.device_put(tuple(arrays), device)
    program = compile_program(loop_step, parameters, x, y)
    losses = []
    for _ in range(STEPS):
        parameters, loss = program.executable(parameters, x, y)
        losses.append(float(loss))
    return losses, time_call(program.call, budget=budget)


def loop_step(parameters: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A gradient-descent step of a network of element-wise layers, ``tanh(weight * x + bias)``.

    Args:
      parameters: weight and bias of each pixel in each layer, ``f32[layers, 2, D]``.
      x: images, ``f32[N, D]``.
      y: targets, ``f32[N, D]``.

    Returns:
      The next parameters, and the mean squared error of the given ones, ``f32[]``.
    """

    def loss(parameters: jax.Array) -> jax.Array:
        hidden = x
        for layer in range(len(parameters)):
            hidden = jnp.tanh(parameters[layer, 0] * hidden + parameters[layer, 1])
        return jnp.mean((hidden - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(parameters)
    return parameters - 100 * gradient, value
