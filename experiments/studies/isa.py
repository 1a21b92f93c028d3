"""What the processor's instruction set is worth (C13): the same step, compiled for SSE4.2, AVX, AVX2 and AVX-512.

XLA:CPU reads the limit from XLA_FLAGS alone, when it starts (seen with jax 0.10.2 and 0.12.0: as a compiler option of one
program it is accepted and changes nothing), so each set has a process of its own. `jaxcnn.ops.native` is told the limit too, but
other libraries that XLA gives matrix products and convolutions to choose their instructions when they run. So two steps are
timed: the network's, as a user has it, and one without products, whose every loop XLA compiles.
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
from experiments.measure.timing import compiled, timed
from experiments.workloads import synthetic_step
from jaxcnn import models
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
SETS = {
    "SSE4_2": {"sse4_2"},
    "AVX": {"avx"},
    "AVX2": {"avx2", "fma"},
    "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
WIDE = "AVX512, 512 bits"  # XLA keeps to vectors of 256 bits unless told otherwise
FLAGS = {name: f"--xla_cpu_max_isa={name}" for name in SETS} | {
    WIDE: "--xla_cpu_max_isa=AVX512 --xla_cpu_prefer_vector_width=512"
}
KERNELS = {
    "SSE4_2": "any",
    "AVX": "any",
    "AVX2": "avx2",
    "AVX512": "avx512",
    WIDE: "avx512",
}  # of `jaxcnn.ops.native`
BUDGETS = {"quick": 0.5, "full": 3.0}  # seconds of sampling a step
QUICK_MODEL = "logistic"  # unless another one is asked for: each process compiles anew, and a CNN takes it long
STEPS = 20  # whose losses are compared
LAYERS, ROWS, PIXELS = 4, 128, 4096  # of the step without products
ABOUT = (
    "the limit holds for what XLA compiles itself and for this package's kernels: {count} products and convolutions of the network's step "
    "are given to libraries, of which others choose their instructions by themselves; the loop step has none"
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each instruction set that the processor has.

    Raises:
      InputError: not a CPU, or not one of this kind.
    """
    if backend.platform != "cpu":
        raise InputError(
            f"study 'isa' limits the code of XLA:CPU, and this is a {backend.platform}: give --device=cpu"
        )
    found = available(_cpu_flags())
    if not found:
        raise InputError(
            "study 'isa' limits x86 instruction sets, and this processor shows none in /proc/cpuinfo"
        )
    wide = [WIDE] if config.preset == "full" and "AVX512" in found else []
    given = config.preset == "full" or config.model != RunConfig.model
    config = config if given else config.replace(model=QUICK_MODEL)
    row = models.spec(config.model)
    defaults = {
        "batch_size": 64,
        "image_size": max(row.input_shape[:2]),
        "optimizer": "adam",
        "learning_rate": 1e-3,
    }
    config = with_strategy(config.with_defaults(defaults).replace(strategy="jit"), backend)
    return [_case(config, name) for name in (*found, *wide)]


def _case(config: RunConfig, name: str) -> Case:
    kept = (
        "model",
        "precision",
        "strategy",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "seed",
    )
    settings = {"instruction_set": name} | {option: getattr(config, option) for option in kept}
    return Case(config, settings, (config.model, name, config.precision, f"b{config.batch_size}"))


def available(flags: set[str]) -> list[str]:
    """The sets of `SETS` that a processor with these flags has, the oldest first.

    >>> available({"sse4_2", "avx", "avx2"})
    ['SSE4_2', 'AVX']
    """
    return [name for name, needed in SETS.items() if needed <= flags]


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return set()
    return set(
        next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    )


def measure(case: Case, context: Context) -> CaseResult:
    """Times both steps in a process whose XLA is limited."""
    flags = FLAGS[case.settings["instruction_set"]]
    if flags in os.environ.get("XLA_FLAGS", ""):
        return _timed(case, context)
    limits = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
    if native.instruction_set():
        limits[native.VARIABLE] = KERNELS[case.settings["instruction_set"]]
    return measure_isolated(case, context, limits)


def _timed(case: Case, context: Context) -> CaseResult:
    budget = BUDGETS[case.config.preset]
    step = synthetic_step.build(case.config, context.backend)
    losses = [float(step()["loss"]) / step.batch_size for _ in range(STEPS)]
    metrics, timing = synthetic_step.time_step(step, budget=budget)
    loop_losses, loop = _timed_loop(context.backend.devices[0], budget, case.config.seed)
    libraries = len(
        re.findall(
            rf"\b(?:dot|convolution)\(|{re.escape(native.CALLS)}", step.program.executable.as_text()
        )
    )
    return CaseResult(
        metrics | {"training_loss": losses[-1], "loop_step_time": loop.median, "steps": STEPS},
        {
            "step_time": list(timing.samples),
            "loop_step_time": list(loop.samples),
            "loss": losses,
            "loop_loss": loop_losses,
        },
        provenance={
            "xla_flags": os.environ["XLA_FLAGS"],
            "library_operations": libraries,
            "noise": timing.noise.verdict,
            "strategy_devices": 1,
            "remarks": [ABOUT.format(count=libraries)],
        },
    )


def _timed_loop(device: jax.Device, budget: float, seed: int):
    """Losses of the step without products, and its timing."""
    rng = np.random.default_rng(seed)
    draw = (
        rng.normal(size=shape).astype(np.float32)
        for shape in [(LAYERS, 2, PIXELS), (ROWS, PIXELS), (ROWS, PIXELS)]
    )
    parameters, x, y = jax.device_put(tuple(draw), device)
    program = compiled(loop_step, parameters, x, y)
    losses = []
    for _ in range(STEPS):
        parameters, loss = program.executable(parameters, x, y)
        losses.append(float(loss))
    return losses, timed(program.call, budget=budget)


def loop_step(parameters: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step of gradient descent of a network whose layers weigh each pixel by itself: tanh(weight · pixel + bias).

    Args:
      parameters: weight and bias of each pixel in each layer, ``f32[layers, 2, D]``.
      x: images, ``f32[N, D]``.
      y: what it should make of them, ``f32[N, D]``.

    Returns:
      The next parameters, and the mean squared error before them, ``f32[]``.
    """

    def loss(parameters: jax.Array) -> jax.Array:
        hidden = x
        for layer in range(len(parameters)):
            hidden = jnp.tanh(parameters[layer, 0] * hidden + parameters[layer, 1])
        return jnp.mean((hidden - y) ** 2)

    value, slope = jax.value_and_grad(loss)(parameters)
    return parameters - 100 * slope, value
