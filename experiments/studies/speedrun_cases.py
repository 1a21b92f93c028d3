"""The two runs of the study `speedrun`: their options, and whether PyTorch trains too."""

import dataclasses

from experiments.config import RunConfig
from experiments.harness.study import Case
from experiments.peers.process import missing_packages
from experiments.studies import train_cases
from jaxcnn import models, parallel
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

MODEL, DATASET, TARGET = "speedrun_cnn", "cifar10", 0.94
# Options that PyTorch's recipe does not have, as published.
FIXED = (
    "optimizer",
    "schedule",
    "augment",
    "normalise",
    "warmup",
    "clip_norm",
    "mixup",
    "cutmix",
    "moving_average",
    "microbatches",
)
OURS, TORCH = "jaxcnn", "pytorch"


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """Ours, and with --preset=full PyTorch's if it is installed and ours uses one device.

    Raises:
      InputError: as in `train_cases.cases`; or options that this study fixes.
    """
    for name in ("stages", "patience", "init_from"):
        if getattr(config, name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} is not for --study=speedrun, which trains once, from "
                "random weights, for a fixed number of epochs"
            )
    config = config.replace(pipeline="resident")
    if config.model == RunConfig.model:
        config = config.replace(model=MODEL)
    if config.dataset == RunConfig.dataset:
        config = config.replace(dataset=DATASET)
    if config.target_accuracy == RunConfig.target_accuracy:
        config = config.replace(target_accuracy=TARGET)
    (case,) = train_cases.cases(config, backend)
    libraries = [OURS]
    is_alone = parallel.device_count(case.config.strategy, len(backend.devices)) == 1
    if may_compare(case.config) and is_alone:
        libraries.append(TORCH)
    return [_of_library(case, library) for library in libraries]


def may_compare(config: RunConfig) -> bool:
    """Whether PyTorch is to train too, where it can by these options and is installed."""
    return config.preset == "full" and _torch_has(config) and not missing_packages("torch")


def _torch_has(config: RunConfig) -> bool:
    """Whether `speedrun_torch` can perform these options."""
    recipe = models.spec(MODEL).recipe
    is_published = all(getattr(config, name) == getattr(recipe, name) for name in FIXED)
    return is_published and config.model == MODEL and config.precision == "float32"


def _of_library(case: Case, library: str) -> Case:
    settings = case.settings | {"library": library}
    parts = (*case.parts, library, f"s{case.config.seed}")
    return dataclasses.replace(case, settings=settings, parts=parts)
