"""The first CNN (D1): five epochs on the processor, the same on the accelerator, and the wall time of both.

A small sequential CNN, pixels from 0 to 1, Adam, cross-entropy of integer labels. One command measures every platform of
the machine: JAX keeps to one a process, so the second has a process of its own.
"""

import dataclasses

from experiments import provenance
from experiments.config import RunConfig
from experiments.isolated import measure_apart
from experiments.studies import train
from experiments.studies.study import Case, Context, EndedBadly, Measured
from jaxcnn import data
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = ("training_time", "compile_time", "cache_load_time", "total_time", "step_time", "images_per_second", "test_accuracy")
MODEL, EPOCHS, BATCH_SIZE = "mnist_cnn", 5, 32  # Keras's batch unless told otherwise


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One a platform: with --device=auto the accelerator and the processor, else the one asked for.

    Raises:
      InputError: as of `train.cases`.
    """
    config = with_mnist(config).replace(model=MODEL, strategy="jit")
    config = config.filled_in({"epochs": EPOCHS, "batch_size": BATCH_SIZE, "augment": "none"})
    (here,) = train.cases(config, backend)
    both = config.device == "auto" and backend.platform != "cpu"
    return [_on(backend.platform, config.device, here), *([_on("cpu", "cpu", here)] if both else [])]


def _on(platform: str, device: str, case: Case) -> Case:
    """Where it runs is told by its name and its provenance; its settings are those of its peers, which it is held against."""
    return dataclasses.replace(case, config=case.config.replace(device=device), parts=(*case.parts, platform))


def with_mnist(config: RunConfig) -> RunConfig:
    """In full, and unless another data set was asked for, MNIST where it is prepared."""
    if config.preset != "full" or config.dataset != "digits":
        return config
    try:
        data.fingerprint("mnist", data_dir=config.data_dir)
    except InputError:
        return config
    return config.replace(dataset="mnist")


def measure(case: Case, context: Context) -> Measured:
    """Trains here, or in a process of its own where the case is another platform's."""
    platform = case.parts[-1]
    if platform == context.backend.platform:
        return _trained(case, context)
    status, message, measured = measure_apart("first_cnn", case, context)
    if status != "ok":
        raise EndedBadly(status, f"on the {platform}: {message}", measured)
    # figures of merit were added there, by what that platform is; without its FLOPs none of this one's are
    metrics = {name: value for name, value in measured.metrics.items() if name != "flops_per_step"}
    return dataclasses.replace(measured, metrics=metrics)


def _trained(case: Case, context: Context) -> Measured:
    measured = train.measure(case, context)
    missing = context.backend.platform == "cpu" and case.config.device == "auto"
    how = "there is no accelerator here; the same command on a machine with one, or --device=gpu, adds its row to these results"
    remarks = [*measured.provenance.get("remarks", []), *([how] if missing else [])]
    told = provenance.describe(context.backend) | measured.provenance | {"remarks": remarks}
    return dataclasses.replace(measured, provenance=told)
