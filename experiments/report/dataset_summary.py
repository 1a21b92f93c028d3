"""A look at the data that a network was trained on: how many of each class, which pixels, and a few of the pictures."""

from typing import Any

from experiments.records import Record
from experiments.report.sanitize import Picture, by_place, entries, names, png, text, whole_numbers
from experiments.report.section import Axis, Figure

BINS = 32
CHANNELS = {1: {"grey": "#808080"}, 3: {"red": "#d62728", "green": "#2ca02c", "blue": "#1f77b4"}}
SPLITS = {"train": "training", "validation": "validation", "test": "test"}
MOST_CLASSES = 100


def counts_figure(record: Record) -> Figure | None:
    """Images of each class in training, validation and test; None where the record does not tell."""
    look = record.dataset_summary
    classes, found = names(look.get("classes"), MOST_CLASSES), look.get("counts")
    if not classes or not isinstance(found, dict):
        return None
    counts = {told: whole_numbers(found.get(name), len(classes)) for name, told in SPLITS.items()}
    if None in counts.values():
        return None
    bars = []
    for told, row in counts.items():
        hovers = [
            f"{name}<br>{count:,} {told} images" for name, count in zip(classes, row, strict=True)
        ]
        bars.append(
            {
                "type": "bar",
                "name": told,
                "x": list(range(len(row))),
                "y": row,
                "hovertext": hovers,
                "hoverinfo": "text",
            }
        )
    axes = Axis("class", more=by_place(classes)), Axis("images")
    return Figure(
        f"Images of each class{_left_out(look)}", bars, *axes, layout={"barmode": "group"}
    )


def _left_out(look: dict[str, Any]) -> str:
    """What is not in the picture."""
    left, counted, there = look.get("classes_left_out"), look.get("counted"), look.get("examples")
    told = (
        f", the {MOST_CLASSES} largest; {left:,} more are not shown"
        if whole_numbers([left]) and left
        else ""
    )
    if isinstance(counted, dict) and isinstance(there, dict):
        rows = ((name, counted.get(key), there.get(key)) for key, name in SPLITS.items())
        fewer = [
            f"{few:,} of {all_:,} {name}"
            for name, few, all_ in rows
            if whole_numbers([few, all_]) and few < all_
        ]
        told += f"; counted: {', '.join(fewer)} images, evenly spread" if fewer else ""
    return told


def histogram_figure(record: Record) -> Figure | None:
    """How often the training pixels have which value, a curve a channel; None where the record does not tell."""
    pixels = record.dataset_summary.get("pixels")
    found = pixels.get("counts") if isinstance(pixels, dict) else None
    rows = (
        [whole_numbers(row, BINS) for row in found]
        if isinstance(found, list) and len(found) in CHANNELS
        else []
    )
    if not rows or None in rows:
        return None
    width, lines = 256 // BINS, []
    for place, (name, colour) in enumerate(CHANNELS[len(rows)].items()):
        counts = rows[place]
        hovers = [
            f"{name}, {bin * width} to {(bin + 1) * width - 1}: {count:,} pixels"
            for bin, count in enumerate(counts)
        ]
        channel = {
            "type": "scatter", "name": f"{name}{_moments(pixels, place)}", "x": [(bin + 0.5) * width for bin in range(BINS)],
            "y": [count / max(1, sum(counts)) for count in counts],
            "mode": "lines", "line": {"color": colour, "shape": "hvh"}, "fill": "tozeroy" if len(rows) == 1 else None,
            "hovertext": hovers, "hoverinfo": "text", "showlegend": True,
        }  # fmt: skip
        lines.append(channel)
    return Figure(
        f"Pixels of the training images{_of(pixels)}",
        lines,
        Axis("value of a pixel, 0 to 255", more={"range": [0, 256]}),
        Axis("share of the pixels", more={"tickformat": ".0%", "rangemode": "tozero"}),
    )


def _moments(pixels: dict[str, Any], place: int) -> str:
    """Mean and standard deviation of a channel, where they are told."""
    told = []
    for name, word in (("mean", "mean"), ("std", "standard deviation")):
        found = pixels.get(name)
        value = found[place] if isinstance(found, list) and len(found) > place else None
        if isinstance(value, int | float) and 0 <= value <= 255:
            told.append(f"{word} {value:.1f}")
    return f": {', '.join(told)}" if told else ""


def _of(pixels: dict[str, Any]) -> str:
    images = pixels.get("images")
    return (
        f", {images:,} of them, as they are stored for the network"
        if whole_numbers([images])
        else ""
    )


def samples(record: Record) -> list[Picture]:
    """One or two training images of each class, with its name."""
    found = (
        (png(entry.get("png")), entry) for entry in entries(record.dataset_summary.get("samples"))
    )
    return [Picture(source, text(entry.get("class"))) for source, entry in found if source]
