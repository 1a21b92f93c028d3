"""The configuration of a run: all options, checked."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments import output_files
from experiments.config import bounds
from experiments.config.durations import parse_duration
from experiments.config.options import (
    DeviceAndStudyOptions,
    DistributedOptions,
    MeasuringOptions,
    ModelAndDataOptions,
    OutputOptions,
    TrainingOptions,
)
from jaxcnn.errors import InputError

_PATHS = ("results", "log_dir", "data_dir", "resume_from", "init_from", "prices", "devices")


@dataclass(frozen=True, kw_only=True)
class RunConfig(
    OutputOptions,
    MeasuringOptions,
    TrainingOptions,
    ModelAndDataOptions,
    DistributedOptions,
    DeviceAndStudyOptions,
):
    """The options of all groups as one flat, validated configuration.

    Attributes:
      config_digest: of the file that `config` names, as it was when it was read.
    """

    config_digest: str | None = None

    def __post_init__(self):
        for name in bounds.COUNTS:
            for value in self._values(name):
                bounds.require_count(name, value)
        for name in bounds.SECONDS:
            for value in self._values(name):
                bounds.require_seconds(name, value)
        for name in _PATHS:
            for value in self._values(name):
                output_files.expand(value, f"--{name.replace('_', '-')}", is_used=False)
        for name in ("learning_rate", "stages", "target_loss"):
            self._require(name, lambda value: 0 < value < float("inf"), "must be a positive number")
        finite = "must be 0 or a positive number"
        for name in ("weight_decay", "warmup", "clip_norm", "mixup", "cutmix"):
            self._require(name, lambda value: 0 <= value < float("inf"), finite)
        average = "must be 0 or lie between 0 and 1"
        for name in ("moving_average", "label_smoothing"):
            self._require(name, lambda value: 0 <= value < 1, average)
        self._require("validation", lambda value: 0 < value < 1, "must lie between 0 and 1")
        self._require("target_accuracy", lambda value: 0 < value <= 1, "must lie between 0 and 1")
        if self.distributed and self.profile:
            raise InputError("--profile is for a single process: leave --distributed out")
        for name in ("coordinator", "num_processes", "process_id"):
            if not self.distributed and getattr(self, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} goes with --distributed")
        if self.seconds_in_total is not None and self.distributed:
            raise InputError("--time-limit-total is for a single process: leave --distributed out")
        if self.log_to != "tensorboard" and self.log_dir is None:
            raise InputError(f"--log-to={self.log_to} needs a folder: --log-dir=logs")
        if self.json and self.list:
            raise InputError("--json goes with a run or with --dry-run, not with --list")

    def _require(self, name: str, holds: Callable[[float], bool], rule: str) -> None:
        """Raises `InputError` unless the rule holds for the option's value, or each of them."""
        for value in self._values(name):
            if not holds(value):
                raise InputError(f"--{name.replace('_', '-')}={value}: {rule}")

    def _values(self, name: str) -> list[Any]:
        """The values of an option that was given."""
        value = getattr(self, name)
        values = value if isinstance(value, tuple) else (value,)
        return [each for each in values if each is not None]

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies, in order, without repetitions."""
        return tuple(dict.fromkeys(name.strip() for name in self.study.split(",")))

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Names of the augmentations, in order."""
        names = () if self.augment in (None, "none") else self.augment.split(",")
        return tuple(name.strip() for name in names)

    @property
    def seconds_in_total(self) -> float | None:
        """The limit on the time of the whole command; None if there is none."""
        if self.time_limit_total is None:
            return None
        return parse_duration(self.time_limit_total, "--time-limit-total")

    def replace(self, **changes: Any) -> "RunConfig":
        return dataclasses.replace(self, **changes)

    def with_defaults(self, defaults: dict[str, Any]) -> "RunConfig":
        """Fills in these values where an option was not given."""
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.replace(**missing)

    def case_settings(self) -> dict[str, str | int | float | bool | None]:
        """The options that make this case different from another: those marked `IDENTITY`.

        Options of `identity_unless` are left out where they are neutral or not given.
        """
        settings = {
            each.name: (getattr(self, each.name), each.metadata)
            for each in dataclasses.fields(self)
            if "identity" in each.metadata
        }
        return {
            name: value
            for name, (value, metadata) in settings.items()
            if "neutral" not in metadata or value not in (None, metadata["neutral"])
        }
