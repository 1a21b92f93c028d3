"""Matches the cases of a baseline with those of a candidate that measure the same."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.records import Record

# Provenance that says where a record was measured. The nearer a difference is to the beginning, the
# farther two places are apart.
_PLACE = ("simulated", "platform", "accelerator", "device_count", "machine")
_ORIGIN = (
    *_PLACE,
    "host_cores",
    "python",
    "source",
    "xla_flags",
    "freed_memory_kept",
    "cpu_kernels",
    "matmul_precision",
    "precision",
    "compiler_options",
    "pipeline",
)
# Provenance that is part of the digits at the end of a case's name, as the data set is.
_IN_CASE_NAME = {"accelerator", "device_count", "host_cores", "jax"}


@dataclass(frozen=True)
class Pair:
    """One case in a baseline and in a candidate.

    Attributes:
      before, after: its runs with one source revision at one place and with the status of the
        newest, which is the last; usually one.
      failures: of each side, how many runs of that revision failed; of versions that were run in
        turn, also how many left no record.
    """

    before: tuple[Record, ...]
    after: tuple[Record, ...]
    failures: tuple[int, int] = (0, 0)


def pairs(
    before: Sequence[Record], after: Sequence[Record], *, paired: bool = False
) -> tuple[list[Pair], list[Record], list[Record]]:
    """Matches the cases of a baseline with those of a candidate by study and settings.

    The names of cases do not match, as they change with the accelerator and the version of JAX. If
    a configuration was measured at several places, the nearest are matched: the same machine first,
    then the same accelerator, then the same platform.

    Args:
      before, after: the records, sorted by time.
      paired: whether both were run in turn, so that each run of one has a counterpart.

    Returns:
      The pairs, the newest records that only the baseline has, and those that only the candidate
      has.
    """
    baseline, candidate = _runs(before), _runs(after)
    matches = [
        pair
        for key, runs in baseline.items()
        for pair in _match_nearest(runs, candidate.get(key, []), paired)
    ]
    matched = {id(record) for pair in matches for record in (pair.before[-1], pair.after[-1])}
    only_before, only_after = (
        [runs[-1] for places in side.values() for runs in places if id(runs[-1]) not in matched]
        for side in (baseline, candidate)
    )
    return matches, only_before, only_after


def differences(pair: Pair) -> dict[str, tuple[Any, Any]]:
    """Differences in provenance between baseline and candidate.

    Returns:
      Both values by name: accelerator, machine, versions, source, flags. ``data`` if the names of
      the two cases show that the data differ.
    """
    old, new = _origin(pair.before[-1]), _origin(pair.after[-1])
    changed = {
        name: (old.get(name), new.get(name))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    }
    digits = [runs[-1].case.rpartition("-")[2] for runs in (pair.before, pair.after)]
    if digits[0] != digits[1] and not changed.keys() & _IN_CASE_NAME:
        changed["data"] = (digits[0], digits[1])
    return changed


def configuration(record: Record) -> str:
    """What a record measured, wherever that was: its study and its settings, as JSON."""
    return json.dumps([record.study, record.settings], sort_keys=True, default=str)


def _runs(records: Sequence[Record]) -> dict[str, list[tuple[Record, ...]]]:
    """By configuration, the runs at each place that are comparable with the newest there."""
    groups: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in records:
        places = groups.setdefault(configuration(record), {})
        places.setdefault(_place(record), []).append(record)
    return {key: [_same_origin(runs) for runs in places.values()] for key, places in groups.items()}


def _same_origin(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records with the case and the origin of the last one.

    A run that failed may have less provenance than others: what both have is compared.
    """
    newest, origin = records[-1], _origin(records[-1])

    def is_alike(record: Record) -> bool:
        own = _origin(record)
        same_status = record.status == newest.status
        names = own.keys() | origin.keys() if same_status else own.keys() & origin.keys()
        return record.case == newest.case and all(own.get(n) == origin.get(n) for n in names)

    return tuple(filter(is_alike, records))


def _place(record: Record) -> tuple[str, ...]:
    return tuple(str(record.provenance.get(name)) for name in _PLACE)


def _origin(record: Record) -> dict[str, Any]:
    """The provenance that may explain a difference: place, software versions, flags."""
    provenance = record.provenance
    versions = provenance.get("versions")
    origin = {name: provenance[name] for name in _ORIGIN if name in provenance}
    return origin | (versions if isinstance(versions, dict) else {})


def _match_nearest(
    before: Sequence[tuple[Record, ...]], after: Sequence[tuple[Record, ...]], paired: bool
) -> list[Pair]:
    """Pairs the places that have most in common, each used once."""
    matches: dict[int, Pair] = {}
    used: set[int] = set()
    candidates = itertools.product(range(len(before)), range(len(after)))
    for i, j in sorted(candidates, key=lambda ij: -_closeness(before[ij[0]][-1], after[ij[1]][-1])):
        if i not in matches and j not in used:
            matches[i] = _pair(before[i], after[j], paired)
            used.add(j)
    return [matches[i] for i in sorted(matches)]


def _pair(before: tuple[Record, ...], after: tuple[Record, ...], paired: bool) -> Pair:
    rounds = max(len(before), len(after)) if paired else 0

    def failures(runs: tuple[Record, ...]) -> int:
        failed = sum(run.status not in ("ok", "predicted") for run in runs)
        return failed + max(rounds - len(runs), 0)

    def like_the_newest(runs: tuple[Record, ...]) -> tuple[Record, ...]:
        return tuple(run for run in runs if run.status == runs[-1].status)

    counts = failures(before), failures(after)
    return Pair(like_the_newest(before), like_the_newest(after), counts)


def _closeness(old: Record, new: Record) -> int:
    """How many parts of two places are the same before the first that differs."""
    same = [a == b for a, b in zip(_place(old), _place(new), strict=True)]
    return (*same, False).index(False)
