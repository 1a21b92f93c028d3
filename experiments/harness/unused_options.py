"""Options that were given and change no case of any chosen study."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.config import RunConfig
from experiments.config.configurations import varied
from experiments.harness.study import Case
from experiments.harness.study_cases import StudyCases
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError


def unused_options(
    configs: Sequence[RunConfig], studies: Iterable[StudyCases], backend: Backend
) -> list[str]:
    """Names of the given options that make no difference to any of the cases.

    An option counts as used if a case has its value in its settings, or if the cases would be
    others without it. A list counts as used if the cases of its values differ. --profile and
    --log-dir count as used if a case is a training run. The other options that do not identify a
    case do not depend on the study.

    Args:
      configs: as parsed, no defaults filled in.
      studies: the chosen studies, each with the cases of these configurations.
      backend: the devices.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(RunConfig)
        if "identity" in field.metadata
        and any(getattr(config, field.name) != field.default for config in configs)
    }
    lists, studies = varied(configs), list(studies)
    unused = [] if _have_training_runs(studies) else ["profile", "log_dir"]
    return [name for name in unused if getattr(configs[0], name)] + [
        name
        for name, default in defaults.items()
        if not any(
            _distinguishes(name, configs, each.series)
            if name in lists
            else _is_used(name, default, configs, each, backend)
            for each in studies
        )
    ]


def _have_training_runs(studies: Iterable[StudyCases]) -> bool:
    return any(
        each.study.is_training_run(case)
        for each in studies
        for cases in each.series
        for case in cases
    )


def _distinguishes(
    name: str, configs: Sequence[RunConfig], series: Sequence[Sequence[Case]]
) -> bool:
    """Whether configurations that differ in this option alone have different cases."""
    by_others: dict[RunConfig, list[tuple[dict[str, Any], tuple[str, ...], str]]] = {}
    for config, cases in zip(configs, series, strict=True):
        others = config.replace(**{name: None})
        if by_others.setdefault(others, _identities(cases)) != _identities(cases):
            return True
    return False


def _is_used(
    name: str, default: Any, configs: Sequence[RunConfig], study: StudyCases, backend: Backend
) -> bool:
    for config, cases in zip(configs, study.series, strict=True):
        if any(case.settings.get(name) == getattr(config, name) for case in cases):
            return True
        try:
            others = study.study.cases(config.replace(**{name: default}), backend)
        except InputError:  # the other options are impossible without this one
            return True
        if _identities(others) != _identities(cases):
            return True
    return False


def _identities(cases: Sequence[Case]) -> list[tuple[dict[str, Any], tuple[str, ...], str]]:
    return [(case.settings, case.parts, case.data) for case in cases]
