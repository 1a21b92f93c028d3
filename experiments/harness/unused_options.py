"""Options that were given and change no case of any chosen study."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.config import RunConfig
from experiments.harness.study import Case, Study
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError


def unused_options(
    config: RunConfig,
    studies: Mapping[str, tuple[Study, Sequence[Case]]],
    backend: Backend,
) -> list[str]:
    """Names of the given options that make no difference to any of the cases.

    An option counts as used if a case has it in its settings, or if the cases would be others
    without it. Only options that identify a case are looked at; the others do not depend on the
    study.

    Args:
      config: as parsed, no defaults filled in.
      studies: the chosen studies by name, each with its cases for this configuration.
      backend: the devices.
    """
    given = {
        field.name: field.default
        for field in dataclasses.fields(config)
        if "identity" in field.metadata and getattr(config, field.name) != field.default
    }
    return [
        name
        for name, default in given.items()
        if not any(
            _is_used(name, config.replace(**{name: default}), study, cases, backend)
            for study, cases in studies.values()
        )
    ]


def _is_used(
    name: str, without: RunConfig, study: Study, cases: Sequence[Case], backend: Backend
) -> bool:
    if any(name in case.settings for case in cases):
        return True
    try:
        return _identities(study.cases(without, backend)) != _identities(cases)
    except InputError:  # the other options are impossible without this one
        return True


def _identities(cases: Sequence[Case]) -> list[tuple[dict[str, Any], tuple[str, ...], str]]:
    return [(case.settings, case.parts, case.data) for case in cases]
