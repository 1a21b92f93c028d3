"""What a study is: its cases, where they run, and what measuring one returns."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etils import epath
from rich.console import Console

from experiments import output_files
from experiments.config import RunConfig
from experiments.records import STATUSES, Record
from experiments.records.metrics import METRICS
from jaxcnn import content_digests, data, models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known

WEIGHTS_DIGEST = "init_from_digest"  # a setting: of the weights that training starts from
DIGEST = "model_digest"  # a setting: of the file of a user's own model


@dataclass(frozen=True)
class CaseResult:
    """What measuring a case returned; the fields go into its `Record` under the same names.

    Attributes:
      metrics: by the names of `METRICS`, in SI units.
      samples: raw samples by any name; those behind a metric have the metric's name.
      curves: one dict of numbers per epoch.
      utilisation: as `measure.utilisation.Sampler.to_json` returns it.
      provenance: whatever describes the measurement, as JSON; ``remarks`` is a list of sentences
        that are printed beside the metrics.
      dataset_summary, mistakes: of a training run, as `evidence` returns them.
      status: one of `experiments.records.STATUSES`; ``ok`` if the case was measured.
      message: why the status is not ``ok``.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    curves: list[dict[str, float]] = field(default_factory=list)
    utilisation: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    dataset_summary: dict[str, Any] = field(default_factory=dict)
    mistakes: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    message: str = ""

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; known: {', '.join(STATUSES)}")
        _require_metrics(self.metrics)


@dataclass(frozen=True)
class Case:
    """One point of a study.

    A user's own model is found by `config` from any folder; `settings` and `parts` have its label,
    which is the same on every machine, and `settings` the digest of its file as ``model_digest``.

    Attributes:
      config: the options, defaults filled in.
      settings: what makes it different from other cases, as JSON; part of its record. ``point``,
        if present, labels the case in titles.
      parts: the parts of its readable name.
      data: fingerprint of the data that it reads.
    """

    config: RunConfig
    settings: dict[str, Any]
    parts: tuple[str, ...]
    data: str = ""

    def __post_init__(self):
        self._add_weights_digest()
        name = self.config.model
        if not models.is_user_model(name) or {"model", DIGEST} & self.settings.keys() != {"model"}:
            return
        user = models.load_user_model(name)
        parts = tuple(user.label if part == name else part for part in self.parts)
        settings = self.settings | {"model": user.label, DIGEST: user.digest}
        object.__setattr__(self, "config", self.config.replace(model=user.name))
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "parts", parts)

    def _add_weights_digest(self) -> None:
        """Puts the digest of the weights of ``--init-from`` beside their path in the settings."""
        path = self.settings.get("init_from")
        if not path or WEIGHTS_DIGEST in self.settings or output_files.is_remote(path):
            return
        place = Path(path).expanduser()
        if not os.path.exists(place):
            raise InputError(
                f"--init-from={path}: there is no such file or folder; give the folder of a "
                "checkpoint, a .weights or a .safetensors file"
            )
        try:
            digest = content_digests.path_digest(place)[:16]
        except OSError as error:
            raise InputError(
                f"--init-from={path}: cannot be read ({error.strerror or error}); give another file"
            ) from error
        object.__setattr__(self, "settings", self.settings | {WEIGHTS_DIGEST: digest})

    def check_model(self) -> None:
        """Checks that a user's own model is the one that the case was made for.

        Raises:
          InputError: its file has changed.
        """
        if DIGEST in self.settings:
            models.check_digest(self.config.model, self.settings[DIGEST])


@dataclass(frozen=True)
class Context:
    """Where a case runs.

    Attributes:
      backend: the devices.
      scratch: the case's own folder, for checkpoints.
      console: for messages to the user.
    """

    backend: Backend
    scratch: epath.Path
    console: Console

    @property
    def study(self) -> str:
        """The name of the study."""
        return self.scratch.parent.name

    @property
    def case(self) -> str:
        """The name of the case, as in its record."""
        return self.scratch.name.removesuffix(".checkpoints")


def _always(case: Case, backend: Backend) -> bool:
    return True


def _never(case: Case) -> bool:
    return False


def _nothing(case: Case) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, and how it is answered.

    Sentences about the records of a study are a row of `experiments.analysis.ANALYSES`, a chart is
    a row of `experiments.report.sections.SECTIONS`.

    Attributes:
      about: the question.
      cases: ``cases(config, backend)`` fills in defaults, rejects what is impossible, and lists the
        cases to measure. It is quick and reads no data.
      measure: ``measure(case, context)`` answers the question for one case.
      columns: metrics shown side by side where a study has several cases; a study of one case
        shows all its metrics.
      isolated: a case may kill its process, so that on a CPU each one gets its own.
      next_cases: ``next_cases(cases, records)`` returns the cases that follow from those measured
        so far, or none if the question is answered. Called whenever no case is left; for a plan,
        with records whose status is ``predicted`` in place of missing ones.
      answers: the statuses that answer the question; such a case is not measured again and is not a
        failure.
      check: ``check(case)`` opens the data and builds the network of a case without weights, as far
        as it takes to reject what is impossible. Called before anything is measured if there are
        several configurations; a single one is rejected by `measure`.
      refresh: ``refresh(case, record)``: the record of an earlier run with current figures, such as
        prices; None if it is not valid any more, and the case has to be measured again. By default
        a record is valid, and its figures of merit are computed anew.
      spans_processes: whether a case may use the devices of several processes (``--distributed``).
      is_training_run: ``is_training_run(case)``: whether the case is a run of the training loop, of
        which ``--profile`` and ``--log-dir`` keep files.
      has_figures_of_merit: ``has_figures_of_merit(case, backend)``: whether MFU, roofline, prices
        and the like mean anything for this case on these devices.
      shared: ``shared()`` returns the context in which all cases are measured, for what they have
        in common, such as a process.
    """

    about: str
    cases: Callable[[RunConfig, Backend], list[Case]]
    measure: Callable[[Case, Context], CaseResult]
    columns: tuple[str, ...] = ()
    isolated: bool = False
    next_cases: Callable[[Sequence[Case], Sequence[Record]], list[Case]] | None = None
    answers: tuple[str, ...] = ("ok",)
    check: Callable[[Case], None] = _nothing
    refresh: Callable[[Case, Record], Record | None] | None = None
    spans_processes: bool = False
    is_training_run: Callable[[Case], bool] = _never
    has_figures_of_merit: Callable[[Case, Backend], bool] = _always
    shared: Callable[[], AbstractContextManager[None]] = nullcontext

    def __post_init__(self):
        _require_metrics(self.columns)


def _require_metrics(names: Iterable[str]) -> None:
    """Raises `ValueError` for a name that is not in `METRICS`."""
    if unknown := sorted(set(names) - METRICS.keys()):
        raise ValueError(
            f"unknown metrics {unknown}: correct them, or add a row with their unit to METRICS in "
            "experiments/records/metrics.py"
        )


def training_case(config: RunConfig, backend: Backend) -> Case:
    """The case of a study that trains one network on one data set.

    Args:
      config: defaults filled in, except for the strategy.
      backend: the devices.

    Raises:
      InputError: as `with_strategy`.
    """
    config = with_strategy(config, backend)
    kind, _, argument = config.dataset.partition(":")
    dataset = f"folder-{epath.Path(argument).name}" if kind == "folder" else config.dataset
    return Case(
        config,
        config.case_settings(),
        (config.model, dataset, config.strategy, config.precision, f"b{config.batch_size}"),
        data.fingerprint(config.dataset, data_dir=config.data_dir),
    )


def with_strategy(config: RunConfig, backend: Backend) -> RunConfig:
    """The configuration with ``--strategy=auto`` resolved.

    Raises:
      InputError: an unknown precision or strategy, a strategy for the devices of one process where
        there are several, a mesh that does not match the devices, or a batch that does not divide
        among them.
    """
    strategy = parallel.resolve(config.strategy, len(backend.devices))
    require_known("precision", config.precision, training.PRECISIONS)
    if backend.process_count > 1 and not parallel.STRATEGIES[strategy].spans_processes:
        able = [name for name, each in parallel.STRATEGIES.items() if each.spans_processes]
        raise InputError(
            f"--strategy={strategy} uses the devices of one process, and there are "
            f"{backend.process_count}: choose {' or '.join(able)}"
        )
    placement = parallel.strategy(strategy, backend.devices, mesh=config.mesh)
    placement.check_batch_size(config.batch_size)
    return config.replace(strategy=strategy)
