"""A first CNN: five epochs on the CPU, the same on the accelerator, and the wall time of both.

As in Scaler's article "GPUs and CNN": MNIST with pixels from 0 to 1, a small sequential CNN, Adam,
cross-entropy of integer labels. One command measures every platform of the machine. JAX uses one
platform per process, so that the second platform has a process of its own.
"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.isolation import measure_isolated
from experiments.harness.study import Case, CaseResult, Context
from experiments.records import provenance
from experiments.studies import train, train_cases
from jaxcnn import data
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = (
    "training_time",
    "compile_time",
    "cache_load_time",
    "total_time",
    "step_time",
    "images_per_second",
    "test_accuracy",
)
NO_ACCELERATOR = (
    "no accelerator on this machine: the same command on a machine with one, or with --device=gpu, "
    "adds a row to these results"
)
MODEL, EPOCHS = "mnist_cnn", 5
BATCH_SIZE = 32  # the default of Keras


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One per platform: with --device=auto the accelerator and the CPU, else the requested one.

    Raises:
      InputError: as in `train_cases.cases`.
    """
    config = with_mnist(config).replace(model=MODEL, strategy="jit")
    config = config.with_defaults({"epochs": EPOCHS, "batch_size": BATCH_SIZE, "augment": "none"})
    (case,) = train_cases.cases(config, backend)
    here = _on_platform(case, backend.platform, config.device)
    if config.device == "auto" and backend.platform != "cpu":
        return [here, _on_platform(case, "cpu", "cpu")]
    return [here]


def _on_platform(case: Case, platform: str, device: str) -> Case:
    """The case on a platform; the settings stay equal, so that its records can be compared."""
    return dataclasses.replace(
        case, config=case.config.replace(device=device), parts=(*case.parts, platform)
    )


def with_mnist(config: RunConfig) -> RunConfig:
    """In the full preset, replaces the default data set by MNIST if that is prepared."""
    if config.preset != "full" or config.dataset != RunConfig.dataset:
        return config
    try:
        data.fingerprint("mnist", data_dir=config.data_dir)
    except InputError:
        return config
    return config.replace(dataset="mnist")


def runs_here(case: Case, backend: Backend) -> bool:
    """Whether the case runs on the platform of this process; only then has it figures of merit."""
    return _platform(case) == backend.platform


def _platform(case: Case) -> str:
    return case.parts[-1]


def measure(case: Case, context: Context) -> CaseResult:
    """Trains in this process, or in a child process if the case is for another platform."""
    if runs_here(case, context.backend):
        return _train(case, context)
    result = measure_isolated(case, context)
    if result.status == "ok":
        return result
    return dataclasses.replace(result, message=f"on the {_platform(case)}: {result.message}")


def _train(case: Case, context: Context) -> CaseResult:
    result = train.measure(case, context)
    remarks = result.provenance.get("remarks", [])
    if context.backend.platform == "cpu" and case.config.device == "auto":
        remarks = [*remarks, NO_ACCELERATOR]
    machine = provenance.describe(context.backend)
    return dataclasses.replace(
        result, provenance=machine | result.provenance | {"remarks": remarks}
    )
