"""Our own measurements of training on accelerators, as runs for the time model.

They are read from the published records of the studies `train`, `first_cnn`, `speedrun` and
`dispatch`, and of `peers`, which has a run for each variant of PyTorch too. Runs that differ in
nothing else, as in their seeds, are one run with the median rate.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

from experiments import hardware
from experiments.preflight.published_runs import XLA_ON_TPU, TrainingRun, published_runs
from experiments.records import Record, load
from experiments.records.published import PUBLISHED

STUDIES = ("train", "first_cnn", "speedrun", "dispatch", "peers")
OURS = "jaxcnn"
SOURCE = "records of this project"
_PRECISIONS = {"bfloat16": "half", "float32": "float32"}


def calibration_runs() -> tuple[TrainingRun, ...]:
    """What the time model is fitted to: the published runs, then those of this project."""
    return (*published_runs(), *measured_runs())


def measured_runs(published: Path = PUBLISHED) -> tuple[TrainingRun, ...]:
    """The runs of this project on one accelerator, in the order of their names.

    Args:
      published: the folder of published records.
    """
    paths = [path for study in STUDIES for path in sorted((published / study).glob("*.json"))]
    records, _ = load(paths)
    rates: dict[TrainingRun, list[float]] = {}
    for record in records:
        for run, rate in _runs(record):
            rates.setdefault(run, []).append(rate)
    runs = [run.replace(rate=statistics.median(values)) for run, values in rates.items()]
    return tuple(sorted(runs, key=lambda run: (run.device, run.program, run.software)))


def _runs(record: Record) -> Iterator[tuple[TrainingRun, float]]:
    """Runs without a rate, and the rate of each in images/s."""
    provenance, settings = record.provenance, record.settings
    platform, precision = provenance.get("platform"), settings.get("precision", "float32")
    if record.status != "ok" or platform not in ("gpu", "tpu") or precision not in _PRECISIONS:
        return
    device = hardware.find(provenance["device_kind"], platform)
    if device is None or provenance["strategy_devices"] != 1:
        return
    run = TrainingRun(
        model=settings["model"],
        device=device.name,
        precision=_PRECISIONS[precision],
        batch=settings["batch_size"],
        image_size=settings["image_size"],
        rate=0.0,
        software=XLA_ON_TPU if platform == "tpu" else OURS,
        source=SOURCE,
        date=provenance["time"].partition("T")[0],
    )
    metrics = record.metrics
    yield run, metrics.get("images_per_second") or run.batch / metrics["step_time"]
    for name, samples in record.samples.items():
        peer, _, work = name.partition(": ")
        if peer.startswith("torch") and work == "train":
            yield run.replace(software=peer), run.batch / statistics.median(samples)
