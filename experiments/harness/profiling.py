"""A trace of some train steps by `jax.profiler`, taken once all is measured: tracing slows the steps that it sees."""

import importlib.util
from typing import TYPE_CHECKING

import jax

from experiments.config import RunConfig
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from jaxcnn.training import FitConfig, TrainState
from jaxcnn.training.loop import RunSteps

if TYPE_CHECKING:  # studies trace
    from experiments.harness.study import Context

DISPATCHES, STEPS = (
    3,
    5,
)  # a GPU's or a CPU's event a kernel: more would be more to load, and say the same
EXTRA = (1 + DISPATCHES) * STEPS  # train steps beyond the plan, at most


def check(config: RunConfig, backend: Backend) -> None:
    """Raises `InputError` where the profiler would end the process: libtpu without a TPU may be of another profiler's version."""
    left_to_itself = not jax.config.jax_platforms
    if (
        config.profile
        and backend.platform != "tpu"
        and left_to_itself
        and importlib.util.find_spec("libtpu")
    ):
        raise InputError(
            f"--profile: libtpu is installed and there is no TPU, which may end JAX's profiler with a crash; "
            f"name the device: --device={backend.platform}"
        )


def trace(run_steps: RunSteps, state: TrainState, plan: FitConfig, context: "Context") -> None:
    """Takes some more train steps, traces all but the first few, and says how to look at them; what was measured stands if it fails.

    Args:
      advance: of the pipeline, compiled; donates the state.
      state: at the end of an epoch.
      plan: of the training; a dispatch's steps belong to one epoch.
      context: of the case; the trace lies beside its checkpoints.
    """
    count, console = max(1, min(STEPS, plan.steps_per_epoch // (1 + DISPATCHES))), context.console
    folder = context.scratch.with_name(f"{context.case}.profile")
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # a train step is one call
    try:
        state, _ = run_steps(state, plan.steps, count)
        with jax.profiler.trace(str(folder), profiler_options=options):
            for number in range(1, 1 + DISPATCHES):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    state, _ = run_steps(state, plan.steps + number * count, count)
    except Exception as error:
        console.print(
            f"no profile: {type(error).__name__}: {error}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return
    files = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    lines = {
        "profile": f"{folder}: {DISPATCHES} dispatches of {count} train steps, taken after what was measured",
        "": f"pip install xprof && xprof --logdir={folder}, or drop {files[-1].name if files else 'its file'} on ui.perfetto.dev",
    }
    for name, text in lines.items():
        console.print(f"{name:<9} {text}", markup=False, highlight=False, soft_wrap=True)
