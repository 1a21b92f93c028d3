"""What every study has in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etils import epath
from rich.console import Console

from experiments.config import RunConfig
from experiments.records import Record
from jaxcnn import data, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known


@dataclass(frozen=True)
class Measured:
    """What a study found out about a case; the fields go into its `Record` under the same names."""

    metrics: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    curves: list[dict[str, float]] = field(default_factory=list)
    utilisation: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    data_look: dict[str, Any] = field(default_factory=dict)
    mistakes: dict[str, Any] = field(default_factory=dict)


class EndedBadly(Exception):
    """A case that was not measured: it failed, found no memory, or was only predicted; with what was found out. Its message is the record's.

    Attributes:
      status: one of `experiments.records.STATUSES`.
      measured: goes into the record all the same.
    """

    def __init__(self, status: str, message: str, measured: Measured):
        super().__init__(message)
        self.status, self.measured = status, measured


@dataclass(frozen=True)
class Case:
    """One point of a study.

    Attributes:
      config: what was asked for, defaults filled in.
      settings: what makes it another case than the next; JSON, part of its record.
      parts: its readable name, in parts.
      data: fingerprint of the data that it reads.
    """

    config: RunConfig
    settings: dict[str, Any]
    parts: tuple[str, ...]
    data: str = ""


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

    @property
    def study(self) -> str:
        """The study's name."""
        return self.scratch.parent.name

    @property
    def case(self) -> str:
        """The case's, as its record has it."""
        return self.scratch.name.removesuffix(".checkpoints")


@dataclass(frozen=True)
class Study:
    """A question.

    Attributes:
      about: the question.
      cases: ``cases(config, backend)`` fills in the defaults, refuses what cannot be, and lists what is to be measured;
        quick, reads no data.
      measure: ``measure(case, context)`` answers the question for one case.
      columns: metrics that are shown side by side where a study has many cases; none where it has one.
      isolated: a case may kill its process, so on a CPU each has one of its own.
      following: ``following(cases, records)`` gives the cases that follow from those that were measured and what became of
        them, none where the question is answered; asked whenever no case is left. A plan asks it with records whose status is
        "predicted" for cases that have none.
      answers: statuses of records that answer the question; such a case is not measured again, and is no failure.
    """

    about: str
    cases: Callable[[RunConfig, Backend], list[Case]]
    measure: Callable[[Case, Context], Measured]
    columns: tuple[str, ...] = ()
    isolated: bool = False
    following: Callable[[Sequence[Case], Sequence[Record]], list[Case]] | None = None
    answers: tuple[str, ...] = ("ok",)


def training_case(config: RunConfig, backend: Backend) -> Case:
    """The case of a study that trains one network on one set of data, by a configuration whose defaults are filled in.

    Raises:
      InputError: as of `placed`.
    """
    config = placed(config, backend)
    kind, _, argument = config.dataset.partition(":")
    dataset = f"folder-{epath.Path(argument).name}" if kind == "folder" else config.dataset
    return Case(
        config,
        config.case_settings(),
        (config.model, dataset, config.strategy, config.precision, f"b{config.batch_size}"),
        data.fingerprint(config.dataset, data_dir=config.data_dir),
    )


def placed(config: RunConfig, backend: Backend) -> RunConfig:
    """The configuration with its strategy chosen: `auto` is jit on one device and data on several.

    Raises:
      InputError: an unknown precision or strategy, or a batch that does not divide among the devices.
    """
    strategy = config.strategy if config.strategy != "auto" else "jit" if len(backend.devices) == 1 else "data"
    require_known("precision", config.precision, training.PRECISIONS)
    parallel.strategy(strategy, backend.devices).check_batch_size(config.batch_size)
    return config.replace(strategy=strategy)
