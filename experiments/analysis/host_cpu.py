"""An accelerator compared with the CPU of its own machine, from training records of one case."""

from collections.abc import Sequence

from experiments.records import Record
from experiments.records.formatting import accelerator_label
from experiments.records.units import number, readable

_RATE = "images_per_second"
# Each strategy computes the same; which one is chosen by default depends on the number of devices.
_IGNORED_SETTINGS = ("strategy",)
# Provenance that two records have in common, by what is said of the CPU then; the nearest first.
_PLACES = {
    "of the same machine": ("machine",),
    "of another machine of the same kind": ("host_cpu", "host_cores"),
}


def conclusion(records: Sequence[Record]) -> list[str]:
    """How many times as fast as the CPU of its machine each accelerator trained.

    Records of the study ``train`` with the same settings are compared, the strategy apart. If an
    accelerator has several, the newest is. The CPU is that of the same machine, else of one with
    the same processor and number of cores, on which a lost session goes on.

    Args:
      records: the newest of each case, sorted by time.

    Returns:
      A sentence for each accelerator that has such a CPU.
    """
    trained = [record for record in records if _is_comparable(record)]
    cpus = [record for record in trained if record.provenance.get("platform") == "cpu"]
    sentences = {}
    for record in trained:
        if record.provenance.get("platform") != "cpu" and (sentence := _compare(record, cpus)):
            sentences[accelerator_label(record)] = sentence
    return list(sentences.values())


def _compare(record: Record, cpus: Sequence[Record]) -> str:
    """The sentence on one record; empty if there is no CPU to compare with."""
    same_case = [cpu for cpu in cpus if _settings(cpu) == _settings(record)]
    for place, names in _PLACES.items():
        if matches := [cpu for cpu in same_case if _is_at(cpu, record, names)]:
            return _sentence(record, matches[-1], place)
    return ""


def _is_comparable(record: Record) -> bool:
    return (
        (record.study, record.status) == ("train", "ok")
        and not record.provenance.get("simulated")
        and bool(record.metrics.get(_RATE))
    )


def _settings(record: Record) -> dict[str, object]:
    return {name: value for name, value in record.settings.items() if name not in _IGNORED_SETTINGS}


def _is_at(cpu: Record, record: Record, names: Sequence[str]) -> bool:
    values = [record.provenance.get(name) for name in names]
    return None not in values and values == [cpu.provenance.get(name) for name in names]


def _sentence(record: Record, cpu: Record, place: str) -> str:
    rates = [each.metrics[_RATE] for each in (record, cpu)]
    fast, slow = (readable(_RATE, rate).removesuffix(" images/s") for rate in rates)
    ratio = number(float(f"{rates[0] / rates[1]:.3g}"))
    return (
        f"The {accelerator_label(record)} trained {fast} images/s, the CPU {place} {slow}: "
        f"{ratio} times as fast."
    )
