"""What every study has in common."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from jaxcnn import parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known


@dataclass(frozen=True)
class Measured:
    """What a study found out about a case; the fields go into its `Record` under the same names."""

    metrics: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    curves: list[dict[str, float]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """Where a case runs.

    Attributes:
      backend: the devices.
      scratch: a folder of the case's own, for checkpoints.
      console: to print on.
    """

    backend: Backend
    scratch: epath.Path
    console: Console


@dataclass(frozen=True)
class Study:
    """A question.

    Attributes:
      about: the question.
      measure: ``measure(config, context)`` answers it for one case.
      resolve: ``resolve(config, backend)`` fills in the defaults and refuses what cannot be; quick, reads no data.
    """

    about: str
    measure: Callable[[RunConfig, Context], Measured]
    resolve: Callable[[RunConfig, Backend], RunConfig]


def placed(config: RunConfig, backend: Backend) -> RunConfig:
    """The configuration with its strategy chosen: `auto` is jit on one device and data on several.

    Raises:
      InputError: an unknown precision or strategy, or a batch that does not divide among the devices.
    """
    strategy = config.strategy if config.strategy != "auto" else "jit" if len(backend.devices) == 1 else "data"
    require_known("precision", config.precision, training.PRECISIONS)
    parallel.strategy(strategy, backend.devices).check_batch_size(config.batch_size)
    return config.replace(strategy=strategy)
