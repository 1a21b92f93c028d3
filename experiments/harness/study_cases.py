"""The cases of a study for one or several configurations, and the order in which they run."""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from experiments.config import RunConfig
from experiments.config.configurations import combination
from experiments.harness.study import Case, Study
from experiments.records import Record, provenance
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class StudyCases:
    """A study and what it has to measure.

    Attributes:
      name: of the study.
      study: the study.
      series: the cases of each configuration. `Study.next_cases` continues each series by itself,
        and a case that several of them have is measured once.
    """

    name: str
    study: Study
    series: tuple[tuple[Case, ...], ...]

    def names(self, backend: Backend) -> set[str]:
        """The names of the cases, without those that follow from results."""
        return {case_name(case, backend) for case in itertools.chain(*self.series)}

    def visit(
        self, backend: Backend, outcome: Callable[[Case, int], Record]
    ) -> list[tuple[Case, Record]]:
        """Visits each case in order, those included that follow from the outcomes of others.

        Args:
          backend: the devices.
          outcome: ``outcome(case, remaining)`` measures or predicts a case; `remaining` is the
            number of cases that are known to be left, this one included.

        Returns:
          The cases and their outcomes.
        """
        known = self.names(backend)
        visited: dict[str, tuple[Case, Record]] = {}
        for cases in self.series:
            pending, done = list(cases), []
            while pending:
                case = pending.pop(0)
                name = case_name(case, backend)
                known.add(name)
                if name not in visited:
                    visited[name] = case, outcome(case, len(known - visited.keys()))
                done.append((case, visited[name][1]))
                if not pending and self.study.next_cases is not None:
                    pending = self.study.next_cases(*zip(*done, strict=True))
        return list(visited.values())


def collect_cases(
    name: str, study: Study, configs: Sequence[RunConfig], backend: Backend
) -> StudyCases:
    """Lists the cases of a study for each configuration.

    If there are several configurations, `Study.check` is called for each case.

    Raises:
      InputError: a configuration is impossible; if there are several, the message names it.
    """
    series: list[tuple[Case, ...]] = []
    checked: set[str] = set()
    for config in configs:
        with _naming(config, configs):
            cases = study.cases(config, backend)
            for case in cases if len(configs) > 1 else ():
                if (case_id := case_name(case, backend)) not in checked:
                    study.check(case)
                checked.add(case_id)
        series.append(tuple(cases))
    return StudyCases(name, study, tuple(series))


@contextlib.contextmanager
def _naming(config: RunConfig, configs: Sequence[RunConfig]) -> Iterator[None]:
    """Adds to an `InputError` which of several configurations it is about."""
    try:
        yield
    except InputError as error:
        if len(configs) == 1:
            raise
        raise InputError(
            f"{combination(config, configs)}: {error} (nothing was measured: all combinations of "
            "the lists have to be possible; leave a value out, or run it by another command)"
        ) from error


def case_name(case: Case, backend: Backend) -> str:
    """The name of a case: readable parts, and eight digits of a hash.

    The hash covers everything that makes the case different from others: settings, data,
    accelerator, number of devices and cores, version of JAX. The machine is not part of it: a
    preempted run resumes on another one.
    """
    facts: dict[str, Any] = {
        "settings": case.settings,
        "data": case.data,
        "accelerator": provenance.accelerator(backend),
        "devices": len(backend.devices),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    parts = (*case.parts, facts["accelerator"], digest)
    return "-".join(re.sub(r"[^a-z0-9.]+", "_", part.lower()).strip("_") for part in parts)
