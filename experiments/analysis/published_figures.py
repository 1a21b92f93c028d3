"""Published figures beside ours that answer the same question.

A question is what was computed: the network, the size and the number of its images, the precision,
and on how many devices. Other settings, such as the options of a recipe, do not change what a step
or a call computes, and need not be equal.
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.analysis.latency import Served, served_within
from experiments.records import Record

_QUESTION = ("model", "batch_size", "precision")
_TRAINING = ("train", "first_cnn", "batch_sweep", "precision")
_NAIVE, _LIBRARY = "rung-element", "rung-xla"  # kernels: a product by elements, and the library's


@dataclass(frozen=True)
class Figure:
    """One answer to a question.

    Attributes:
      question: in words.
      metric: a name of `metrics.METRICS`, for the unit.
      record: the source.
      value: in the metric's SI unit.
    """

    question: str
    metric: str
    record: Record
    value: float


def published_figures(records: Sequence[Record]) -> list[Figure]:
    """The figures of each question that both a document and a record of ours answer.

    Args:
      records: the newest of each case, of documents and of ours; failures and simulated devices are
        ignored.

    Returns:
      Figures by question, the published ones first.
    """
    usable = [r for r in records if r.status == "ok" and not r.provenance.get("simulated")]
    published = [r for r in usable if r.provenance.get("published")]
    ours = [r for r in usable if not r.provenance.get("published")]
    questions: dict[str, list[Figure]] = {}
    for figure in (*_answers(published, published), *_answers(ours, published), *_products(ours)):
        questions.setdefault(figure.question, []).append(figure)
    for figure in _inferences(ours):
        questions.setdefault(figure.question, []).append(figure)
    for record in published[::-1]:
        for metric, question in _RELATIVE.items():
            if metric in record.metrics:
                figure = Figure(question, metric, record, record.metrics[metric])
                questions.setdefault(question, []).insert(0, figure)
    return [
        figure
        for figures in questions.values()
        if len({bool(figure.record.provenance.get("published")) for figure in figures}) == 2
        for figure in figures
    ]


def _answers(records: Sequence[Record], published: Sequence[Record]) -> Iterator[Figure]:
    """The times of records that compute what a published record did."""
    for question in published:
        steps, label = question.metrics.get("steps"), _label(question)
        for record in records:
            if not _same_question(record, question):
                continue
            if steps and record.metrics.get("step_time"):
                text = f"{label}: {steps:,.0f} steps"
                yield Figure(text, "training_time", record, steps * record.metrics["step_time"])
            elif question.metrics.get("images_per_second") and not steps:
                rate = record.metrics.get("images_per_second")
                if rate and record.study in _TRAINING:
                    text = f"{label}: images per second in training"
                    yield Figure(text, "images_per_second", record, rate)
            elif question.metrics.get("call_time") and record.metrics.get("call_time"):
                yield Figure(f"{label}: a call", "call_time", record, record.metrics["call_time"])


def _same_question(record: Record, question: Record) -> bool:
    """Whether two records have the same settings of a question.

    A record without an image size has that of its network, as the documents have.
    """
    kinds = record.study == "predict", question.study == "predict"
    pairs = [(record.settings.get(name), question.settings.get(name)) for name in _QUESTION]
    size = question.settings.get("image_size")
    pairs += [
        (record.settings.get("image_size") or size, size),
        tuple(each.provenance.get("strategy_devices", 1) for each in (record, question)),
    ]
    return kinds[0] == kinds[1] and None not in pairs[0] and all(a == b for a, b in pairs)


def _label(record: Record) -> str:
    settings = record.settings
    return (
        f"{settings.get('model')}, {settings.get('precision')}, batch {settings.get('batch_size')}"
    )


_PRODUCT = "a matrix product as a kernel, an output element at a time: speed relative to a CPU"
_RUNGS = "a matrix product: FLOP/s of the library over those of a product by elements"


_INFERENCES = (
    "inferences per second within 10 ms: published, relative to a TPU v1; ours, relative to our "
    "TPU, or without one to our CPU, geometric mean over networks"
)
_RELATIVE = {"speed_up_over_cpu": _PRODUCT, "relative_inferences": _INFERENCES}


def _inferences(ours: Sequence[Record]) -> Iterator[Figure]:
    """Inferences per second within the limit on latency, relative to those of a TPU or a CPU."""
    rates: dict[tuple[str, str], dict[str, Served]] = {}
    for served in served_within(ours):
        if served.best is None:
            continue
        origin, settings = served.best.provenance, served.best.settings
        place = (str(origin.get("accelerator")), str(origin.get("machine")))
        network = json.dumps([settings.get("model"), settings.get("precision")])
        rates.setdefault(place, {})[network] = served
    places = sorted(rates, key=lambda place: _BASES.index(_platform(rates[place])))
    if not places or _platform(rates[places[0]]) == "gpu":
        return
    for place in places[1:]:
        ratios = {
            network: served.images_per_second / rates[places[0]][network].images_per_second
            for network, served in rates[place].items()
            if network in rates[places[0]]
        }
        if ratios:
            record = next(iter(rates[place].values())).best
            mean = statistics.geometric_mean(ratios.values())
            yield Figure(_INFERENCES, "relative_inferences", record, mean)


_BASES = ("tpu", "cpu", "gpu")  # in order of preference


def _platform(rates: dict[str, Served]) -> str:
    return str(next(iter(rates.values())).best.provenance.get("platform"))


def _products(ours: Sequence[Record]) -> Iterator[Figure]:
    """The naive product on accelerators relative to our CPU's, by kernels of the same name."""
    naive = [
        record
        for record in ours
        if record.study == "kernels"
        and str(record.settings.get("kernel")).startswith(_NAIVE)
        and record.metrics.get("call_time")
    ]
    on_cpu = {r.settings["kernel"]: r for r in naive if r.provenance.get("platform") == "cpu"}
    for record in naive:
        cpu = on_cpu.get(record.settings["kernel"])
        if cpu is not None and record is not cpu:
            ratio = cpu.metrics["call_time"] / record.metrics["call_time"]
            yield Figure(_PRODUCT, "speed_up_over_cpu", record, ratio)


def library_over_naive(records: Sequence[Record]) -> list[Figure]:
    """How much faster the library's matrix product is than one by elements, on each accelerator.

    Of each the best rate over the sizes measured, as the naive one cannot have the largest.
    """
    rates: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        kernel = str(record.settings.get("kernel"))
        kind = next((kind for kind in (_NAIVE, _LIBRARY) if kernel.startswith(kind)), None)
        if kind is None or record.status != "ok" or not record.metrics.get("flops_per_second"):
            continue
        names = ("accelerator", "machine")
        accelerator, machine = (str(record.provenance.get(name)) for name in names)
        best = rates.setdefault((accelerator, machine), {})
        if kind not in best or _rate(record) > _rate(best[kind]):
            best[kind] = record
    return [
        Figure(_RUNGS, "speed_up", best[_LIBRARY], _rate(best[_LIBRARY]) / _rate(best[_NAIVE]))
        for best in rates.values()
        if len(best) == 2
    ]


def _rate(record: Record) -> float:
    return record.metrics["flops_per_second"]
