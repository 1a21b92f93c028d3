"""Figures of a data set summary: images per class, histogram of the pixels, and sample images.

The summary is the one that `experiments.evidence.dataset_summary` stored in the record.
"""

from typing import Any

from experiments.records import Record
from experiments.report.sanitize import (
    CaptionedImage,
    caption_text,
    class_names,
    entries,
    indexed_ticks,
    png_url,
    whole_numbers,
)
from experiments.report.section import Axis, Figure

BINS = 32
CHANNELS = {1: {"gray": "#808080"}, 3: {"red": "#d62728", "green": "#2ca02c", "blue": "#1f77b4"}}
SPLITS = {"train": "training", "validation": "validation", "test": "test"}
MAX_CLASSES = 100


def counts_figure(record: Record) -> Figure | None:
    """Images per class in each split, as grouped bars; None if the record has no valid counts."""
    summary = record.dataset_summary
    classes, by_split = class_names(summary.get("classes"), MAX_CLASSES), summary.get("counts")
    if not classes or not isinstance(by_split, dict):
        return None
    counts = {
        split: whole_numbers(by_split.get(key), len(classes)) for key, split in SPLITS.items()
    }
    if None in counts.values():
        return None
    bars = [_bars(split, values, classes) for split, values in counts.items()]
    return Figure(
        f"Images per class{_coverage(summary)}",
        bars,
        Axis("class", options=indexed_ticks(classes)),
        Axis("images"),
        layout={"barmode": "group"},
    )


def _bars(split: str, counts: list[int], classes: list[str]) -> dict[str, Any]:
    hovers = [
        f"{name}<br>{count:,} {split} images" for name, count in zip(classes, counts, strict=True)
    ]
    return {
        "type": "bar",
        "name": split,
        "x": list(range(len(counts))),
        "y": counts,
        "hovertext": hovers,
        "hoverinfo": "text",
    }


def _coverage(summary: dict[str, Any]) -> str:
    """Says which classes and images the counts do not cover; empty if they cover all."""
    coverage = ""
    hidden = summary.get("classes_left_out")
    if whole_numbers([hidden]) and hidden:
        coverage = f", the {MAX_CLASSES} largest; {hidden:,} more are not shown"
    counted, examples = summary.get("counted"), summary.get("examples")
    if not isinstance(counted, dict) or not isinstance(examples, dict):
        return coverage
    sizes = [(split, counted.get(key), examples.get(key)) for key, split in SPLITS.items()]
    partial = [
        f"{count:,} of {total:,} {split}"
        for split, count, total in sizes
        if whole_numbers([count, total]) and count < total
    ]
    if partial:
        coverage += f"; counted: {', '.join(partial)} images, evenly spaced"
    return coverage


def histogram_figure(record: Record) -> Figure | None:
    """Histogram of the training pixels, one curve per channel; None if the record has none."""
    pixels = record.dataset_summary.get("pixels")
    counts = pixels.get("counts") if isinstance(pixels, dict) else None
    if not isinstance(counts, list) or len(counts) not in CHANNELS:
        return None
    channels = [whole_numbers(values, BINS) for values in counts]
    if None in channels:
        return None
    colors = CHANNELS[len(channels)]
    curves = [
        _curve(name, color, values, _moments(pixels, index), filled=len(channels) == 1)
        for index, (values, (name, color)) in enumerate(zip(channels, colors.items(), strict=True))
    ]
    images = pixels.get("images")
    scope = f", {images:,} of them, as stored for the network" if whole_numbers([images]) else ""
    return Figure(
        f"Pixels of the training images{scope}",
        curves,
        Axis("pixel value, 0 to 255", options={"range": [0, 256]}),
        Axis("share of the pixels", options={"tickformat": ".0%", "rangemode": "tozero"}),
    )


def _curve(name: str, color: str, counts: list[int], moments: str, filled: bool) -> dict[str, Any]:
    width, total = 256 // BINS, max(1, sum(counts))
    hovers = [
        f"{name}, {index * width} to {(index + 1) * width - 1}: {count:,} pixels"
        for index, count in enumerate(counts)
    ]
    return {
        "type": "scatter",
        "name": f"{name}{moments}",
        "x": [(index + 0.5) * width for index in range(BINS)],
        "y": [count / total for count in counts],
        "mode": "lines",
        "line": {"color": color, "shape": "hvh"},
        "fill": "tozeroy" if filled else None,
        "hovertext": hovers,
        "hoverinfo": "text",
        "showlegend": True,
    }


def _moments(pixels: dict[str, Any], channel: int) -> str:
    """Mean and standard deviation of a channel, if the record has valid ones."""
    moments = []
    for key, name in (("mean", "mean"), ("std", "standard deviation")):
        values = pixels.get(key)
        value = values[channel] if isinstance(values, list) and len(values) > channel else None
        if isinstance(value, int | float) and 0 <= value <= 255:
            moments.append(f"{name} {value:.1f}")
    return f": {', '.join(moments)}" if moments else ""


def sample_images(record: Record) -> list[CaptionedImage]:
    """The sample images of the training set, with their classes."""
    samples = entries(record.dataset_summary.get("samples"))
    urls = [(png_url(entry.get("png")), entry) for entry in samples]
    return [CaptionedImage(url, caption_text(entry.get("class"))) for url, entry in urls if url]
