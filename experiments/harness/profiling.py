"""Traces some train steps with `jax.profiler`.

The trace is taken after everything has been measured, because tracing slows the steps down.
"""

import importlib.util

import jax
from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness.study import Context
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from jaxcnn.training import FitConfig, TrainState
from jaxcnn.training.loop import RunSteps

# A trace has an event per kernel: more steps would take longer to load and show nothing new.
DISPATCHES = 3
STEPS_PER_DISPATCH = 5
EXTRA_STEPS = (1 + DISPATCHES) * STEPS_PER_DISPATCH  # the most train steps taken for a trace


def check(config: RunConfig, backend: Backend) -> None:
    """Checks, before anything is measured, that the profiler will not crash the process.

    It may crash where libtpu is installed without a TPU, because libtpu may have been built for
    another version of the profiler.

    Raises:
      InputError: libtpu is installed, there is no TPU, and JAX chooses the platform itself.
    """
    jax_chooses_platform = not jax.config.jax_platforms  # type: ignore[attr-defined]  # dynamic
    if (
        config.profile
        and backend.platform != "tpu"
        and jax_chooses_platform
        and importlib.util.find_spec("libtpu")
    ):
        raise InputError(
            "--profile: libtpu is installed but there is no TPU, which may crash JAX's profiler; "
            f"name the device: --device={backend.platform}"
        )


def trace(run_steps: RunSteps, state: TrainState, config: FitConfig, context: Context) -> None:
    """Takes some more train steps, traces all but the first dispatch, and prints how to view it.

    An exception of the profiler is printed, not raised: the measurements stand without a trace.

    Args:
      run_steps: of the pipeline, compiled; donates the state.
      state: at the end of an epoch.
      config: of the training run; the steps of a dispatch belong to one epoch.
      context: of the case; the trace is written beside its checkpoints.
    """
    steps = max(1, min(STEPS_PER_DISPATCH, config.steps_per_epoch // (1 + DISPATCHES)))
    place = folder(context.scratch)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # a train step is one call
    try:
        state, _ = run_steps(state, config.steps, steps)
        with jax.profiler.trace(str(place), profiler_options=options):
            for number in range(1, 1 + DISPATCHES):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    state, _ = run_steps(state, config.steps + number * steps, steps)
    except Exception as error:
        _print(context.console, f"no profile: {type(error).__name__}: {error}")
        return
    _print(
        context.console,
        f"profile   {DISPATCHES} dispatches of {steps} train steps, traced after everything was "
        "measured",
    )
    print_place(place, context.console)


def folder(scratch: epath.Path) -> epath.Path:
    """Where the profile of a case is.

    Args:
      scratch: the case's folder of checkpoints.
    """
    return scratch.with_name(f"{scratch.name.removesuffix('.checkpoints')}.profile")


def exists(folder: epath.Path) -> bool:
    """Whether there is a trace in the folder of a profile."""
    return any(folder.glob("plugins/profile/*/*"))


def print_place(folder: epath.Path, console: Console) -> None:
    """Prints where a profile is and how to open it."""
    files = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    file = files[-1].name if files else "its file"
    _print(console, f"profile   {folder}")
    _print(
        console,
        f"          pip install xprof && xprof --logdir={folder}, or open {file} in "
        "ui.perfetto.dev",
    )


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
