"""The first CNN (D1): five epochs on the processor, the same on the accelerator, and the wall time of both.

A small sequential CNN, pixels from 0 to 1, Adam, cross-entropy of integer labels. One command measures every platform of
the machine: JAX keeps to one a process, so the second has a process of its own.
"""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.isolation import measure_isolated
from experiments.harness.study import Case, CaseResult, Context
from experiments.records import provenance
from experiments.studies import train
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
    "there is no accelerator here; the same command on a machine with one, or --device=gpu, adds its row "
    "to these results"
)
MODEL, EPOCHS, BATCH_SIZE = "mnist_cnn", 5, 32  # Keras's batch unless told otherwise


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One a platform: with --device=auto the accelerator and the processor, else the one asked for.

    Raises:
      InputError: as of `train.cases`.
    """
    config = with_mnist(config).replace(model=MODEL, strategy="jit")
    config = config.with_defaults({"epochs": EPOCHS, "batch_size": BATCH_SIZE, "augment": "none"})
    (here,) = train.cases(config, backend)
    both = config.device == "auto" and backend.platform != "cpu"
    return [
        _on(backend.platform, config.device, here),
        *([_on("cpu", "cpu", here)] if both else []),
    ]


def _on(platform: str, device: str, case: Case) -> Case:
    """Where it runs is told by its name and its provenance; its settings are those of its peers, which it is held against."""
    return dataclasses.replace(
        case, config=case.config.replace(device=device), parts=(*case.parts, platform)
    )


def with_mnist(config: RunConfig) -> RunConfig:
    """In full, and unless another data set was asked for, MNIST where it is prepared."""
    if config.preset != "full" or config.dataset != "digits":
        return config
    try:
        data.fingerprint("mnist", data_dir=config.data_dir)
    except InputError:
        return config
    return config.replace(dataset="mnist")


def runs_here(case: Case, backend: Backend) -> bool:
    """Whether the case runs on this process's platform; its figures of merit are of that platform."""
    return _platform(case) == backend.platform


def _platform(case: Case) -> str:
    return case.parts[-1]


def measure(case: Case, context: Context) -> CaseResult:
    """Trains here, or in a process of its own if the case is for another platform."""
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
    origin = provenance.describe(context.backend) | result.provenance | {"remarks": remarks}
    return dataclasses.replace(result, provenance=origin)
