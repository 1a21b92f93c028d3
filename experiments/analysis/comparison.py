"""Records of one question held against each other: accelerators side by side, and a baseline against a candidate."""

import functools
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.measure.noise import compare
from experiments.records import Record

TIMES = ("step_time", "call_time")
_PLACE = (
    "simulated",
    "platform",
    "accelerator",
    "device_count",
    "machine",
)  # the first that differs says how far apart
_ORIGIN = (
    *_PLACE, "host_cores", "python", "source", "xla_flags", "freed_memory_kept", "cpu_kernels", "matmul_precision", "precision", "compiler_options", "pipeline",
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """One record among those of its question.

    Attributes:
      record: of one accelerator.
      quickest: of the one that was quickest, which may be this one.
      metric: the time by which it is compared, one of `TIMES`.
    """

    record: Record
    quickest: Record
    metric: str

    @property
    def ratio(self) -> float:
        """Its time over that of the quickest."""
        return self.record.metrics[self.metric] / self.quickest.metrics[self.metric]

    @functools.cached_property
    def verdict(self) -> str:
        """In words, whether that is more than noise; empty for the quickest. Of two medians without samples nobody knows."""
        if self.record is self.quickest:
            return ""
        times = [samples(record, self.metric) for record in (self.record, self.quickest)]
        if not all(times):
            return "cannot say: no samples"
        try:
            return compare(*times).verdict
        except (TypeError, ValueError) as error:  # of a record from elsewhere
            return f"cannot say: {error}"


@dataclass(frozen=True)
class Pair:
    """One case in a baseline and in a candidate.

    Attributes:
      before, after: its runs with one code in one place, the newest last; seldom more than one.
    """

    before: tuple[Record, ...]
    after: tuple[Record, ...]


def side_by_side(records: Sequence[Record]) -> list[list[Standing]]:
    """The questions that several accelerators, or several machines, answered, each with its records, the quickest first."""
    questions: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and not record.provenance.get("simulated") and _metric(record):
            questions.setdefault(_question(record, _metric(record)), []).append(record)
    return [
        _standings(group)
        for group in questions.values()
        if len({_where(record) for record in group}) > 1
    ]


def pairs(
    before: Sequence[Record], after: Sequence[Record]
) -> tuple[list[Pair], list[Record], list[Record]]:
    """The cases of a baseline and of a candidate: those of the same study and settings belong together.

    Their names do not say, for they change with the accelerator and the version of JAX. Where several places answered a question,
    the nearest belong together: the same machine first, then the same accelerator, then the same platform.

    Args:
      before, after: records by time.

    Returns:
      The pairs, and the newest records that only one of the two has.
    """
    theirs, ours = _runs(before), _runs(after)
    found = [
        pair for question in theirs for pair in _nearest(theirs[question], ours.get(question, []))
    ]
    paired = {id(record) for pair in found for record in (pair.before[-1], pair.after[-1])}
    alone = [
        [runs[-1] for places in side.values() for runs in places if id(runs[-1]) not in paired]
        for side in (theirs, ours)
    ]
    return found, alone[0], alone[1]


def differences(pair: Pair) -> dict[str, tuple[Any, Any]]:
    """In what two records' provenance differs: accelerator, machine, versions, source, flags, and by its case's name the data."""
    old, new = _origin(pair.before[-1]), _origin(pair.after[-1])
    found = {
        name: (old.get(name), new.get(name))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    }
    if not found.keys() & {
        "accelerator",
        "device_count",
        "host_cores",
        "jax",
    }:  # what else goes into the name's digits
        digits = [runs[-1].case.rpartition("-")[2] for runs in (pair.before, pair.after)]
        found |= {"data": tuple(digits)} if digits[0] != digits[1] else {}
    return found


def _standings(records: Sequence[Record]) -> list[Standing]:
    metric = _metric(records[0])
    ranked = sorted(records, key=lambda record: record.metrics[metric])
    return [Standing(record, ranked[0], metric) for record in ranked]


def _metric(record: Record) -> str:
    return next((name for name in TIMES if record.metrics.get(name)), "")


def _question(record: Record, *more: str) -> str:
    return json.dumps([record.study, *more, record.settings], sort_keys=True, default=str)


def samples(record: Record, name: str) -> list[float]:
    """Seconds of a step or a call, sample by sample; of dispatches of several steps, each sitting's first left out."""
    if name in record.samples or name != "step_time":
        return record.samples.get(name, [])
    parts = [record.samples.get(f"dispatch_{name}", []) for name in ("time", "steps", "sitting")]
    rows = list(zip(*parts, strict=False))
    return [
        time / steps
        for (time, steps, sitting), (*_, before) in zip(rows[1:], rows, strict=False)
        if sitting == before
    ]


def _where(record: Record) -> tuple[str, ...]:
    """Accelerator, how many of them, and machine."""
    return tuple(
        str(record.provenance.get(name)) for name in ("accelerator", "strategy_devices", "machine")
    )


def _runs(records: Sequence[Record]) -> dict[str, list[tuple[Record, ...]]]:
    """By question, the runs at each place: those that ended as the newest did and have its code."""
    questions: dict[str, dict[tuple[str, ...], list[Record]]] = {}
    for record in records:
        questions.setdefault(_question(record), {}).setdefault(_place(record), []).append(record)
    return {
        question: [_alike(found) for found in places.values()]
        for question, places in questions.items()
    }


def _alike(records: Sequence[Record]) -> tuple[Record, ...]:
    newest = records[-1]
    return tuple(
        r
        for r in records
        if (r.status, r.case, _origin(r)) == (newest.status, newest.case, _origin(newest))
    )


def _place(record: Record) -> tuple[str, ...]:
    return tuple(str(record.provenance.get(name)) for name in _PLACE)


def _origin(record: Record) -> dict[str, Any]:
    versions = record.provenance.get("versions")
    told = {name: record.provenance[name] for name in _ORIGIN if name in record.provenance}
    return told | (versions if isinstance(versions, dict) else {})


def _nearest(
    before: Sequence[tuple[Record, ...]], after: Sequence[tuple[Record, ...]]
) -> list[Pair]:
    """Pairs of those that have most in common, each used once."""
    found: dict[int, Pair] = {}
    taken: set[int] = set()
    candidates = itertools.product(enumerate(before), enumerate(after))
    for (i, old), (j, new) in sorted(
        candidates, key=lambda both: -_common(both[0][1][-1], both[1][1][-1])
    ):
        if i not in found and j not in taken:
            found[i] = Pair(old, new)
            taken.add(j)
    return [found[i] for i in sorted(found)]


def _common(old: Record, new: Record) -> int:
    """How many parts of their places are the same, up to the first that is not."""
    same = [a == b for a, b in zip(_place(old), _place(new), strict=True)]
    return (*same, False).index(False)
