"""What is told of predicted records on the terminal."""

from collections.abc import Iterator, Sequence

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.preflight import libraries, targets
from experiments.preflight.result import gigabytes
from experiments.records import Record
from experiments.records.formatting import number, readable, remarks

_HEADINGS = (
    "case", "batch", "memory", "largest\nbatch", "step,\nat best", "images/s,\nat most", "MFU,\nat most", "$ an epoch,\nat least",
)  # fmt: skip


def print_targets(console: Console) -> None:
    """What can be compiled for, and with what."""
    table = Table(box=rich.box.SIMPLE)
    for heading in ("target", "chips", "JAX devices", "as", "compiler"):
        table.add_column(heading)
    for name in targets.known():
        if name not in targets.GROUPS:
            target = targets.target(name)
            compiler = libraries.compiler(target) or "not installed"
            table.add_row(
                name,
                str(target.chips),
                str(target.devices),
                target.row or "this processor",
                compiler,
            )
    console.print(table)
    console.print(
        "also tpu-v5e:2x4 (by the shape of a slice), gpu-h100-8 (so many in one machine), cpu-8 (simulated), and the groups",
        soft_wrap=True,
    )
    for name, members in targets.GROUPS.items():
        console.print(
            f"{name}: {', '.join(members)}", markup=False, highlight=False, soft_wrap=True
        )
    needed = dict.fromkeys(libraries.missing(targets.target(name)) for name in targets.ALL)
    for line in filter(None, needed):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_line(console: Console, record: Record, place: int, total: int) -> None:
    """One case of many, as soon as it is known."""
    seconds = record.provenance.get("case_seconds", 0.0)
    said = "fits" if record.status == "predicted" else f"{record.status}: {record.message}"
    text = f"{place}/{total}  {_label(record)}  {said}  {seconds:.0f} s"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_case(console: Console, record: Record) -> None:
    """One case, a line for each thing that is known of it."""
    for name, text in _lines(record):
        console.print(f"{name:<10}{text}", markup=False, highlight=False, soft_wrap=True)


def _label(record: Record) -> str:
    settings = record.settings
    return f"{settings['model']} on {settings['target']}, {settings['strategy']}, {settings['precision']}, batch {settings['batch_size']}"


def _lines(record: Record) -> Iterator[tuple[str, str]]:
    found, origin = record.metrics, record.provenance
    yield (
        "target",
        f"{record.settings['target']}: {origin['device_count']} × {origin['device_kind']}, by {origin['compiler']}",
    )
    yield "case", _label(record)
    yield "compiles", _verdict(record)
    if "memory_planned" in found and "memory_available" in found:
        parts = ("arguments", "temporaries", "outputs", "code")
        each = ", ".join(
            f"{part} {gigabytes(found[f'memory_{part}'])}"
            for part in parts
            if f"memory_{part}" in found
        )
        yield (
            "memory",
            f"{gigabytes(found['memory_planned'])} of {gigabytes(found['memory_available'])} on a device{f': {each}' if each else ''}",
        )
    if largest := _largest(record):
        yield "largest", largest
    if "flops_per_step" in found:
        names = ("flops_per_step", "bytes_per_step", "arithmetic_intensity")
        yield (
            "work",
            "{} and {} a step, {}".format(*(readable(name, found[name]) for name in names)),
        )
    yield from _bounds(record)
    for remark in remarks(record):
        yield "note", remark


def _verdict(record: Record) -> str:
    if record.status == "predicted":
        level = record.provenance["level"]
        return f"yes, in {record.metrics.get('compile_time', 0):.1f} s ({level} level of optimisation)".replace(
            "(the", "(at the", 1
        )
    return f"{record.status}: {record.message}"


def _largest(record: Record) -> str:
    found, tried = record.metrics, len(record.provenance.get("batches_tried", []))
    if not tried:
        return ""
    fits = (
        f"a batch of {found['largest_batch']:,} fits"
        if "largest_batch" in found
        else "no batch was found that fits"
    )
    refused = (
        f", one of {found['smallest_refused_batch']:,} does not"
        if "smallest_refused_batch" in found
        else ""
    )
    refused = refused or (", more was not tried" if "largest_batch" in found else "")
    return f"{fits}{refused} ({tried} batches tried)"


def _bounds(record: Record) -> Iterator[tuple[str, str]]:
    found = record.metrics
    if "step_time_bound" not in found:
        return
    step, rate = (
        readable(name, found[name]) for name in ("step_time_bound", "images_per_second_bound")
    )
    limit = record.provenance.get("limit")
    yield "at best", f"{step} a step, {rate}, MFU {found['mfu_ceiling']:.0%}: bound by {limit}"
    if "step_time_calibrated" in found:
        yield (
            "likely",
            f"{readable('step_time_calibrated', found['step_time_calibrated'])} a step, calibrated by measured records",
        )
    if "cost_per_epoch_bound" in found:
        money = (found[name] for name in ("cost_per_thousand_images_bound", "cost_per_epoch_bound"))
        images = record.provenance["epoch_images"]
        yield (
            "costs",
            "at least ${:.3g} per 1000 images, ${:.3g} an epoch of {:,}, at ${:.3g} an hour".format(
                *money, images, found["price_per_hour"]
            ),
        )
    for each in record.provenance.get("collectives", []):
        yield (
            "sends",
            f"{each['count']} × {each['kind']}, {number(each['bytes'])} bytes in all on a device",
        )
    if "scaling_efficiency_bound" in found:
        least, worst, best = (
            found[name]
            for name in (
                "communication_bound",
                "scaling_efficiency_unhidden",
                "scaling_efficiency_bound",
            )
        )
        yield (
            "scales",
            f"{readable('communication_bound', least)} of communication at best: efficiency at most {worst:.1%} unhidden, {best:.1%} hidden",
        )


def print_cases(console: Console, records: Sequence[Record]) -> None:
    """Many cases, a row each, and below them why some do not fit."""
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "case" else "right", overflow="fold")
    for record in records:
        table.add_row(*map(escape, _row(record)))
    console.print(table)
    fit = sum(record.status == "predicted" for record in records)
    console.print(f"{fit} of {len(records)} programs compile and fit", highlight=False)
    every = dict.fromkeys(
        remark
        for record in records
        for remark in remarks(record)
        if not remark.startswith(("measured", "calibrated"))
    )
    for remark in every:
        console.print(f"note: {remark}", markup=False, highlight=False, soft_wrap=True)


def _row(record: Record) -> tuple[str, ...]:
    found, settings = record.metrics, record.settings
    label = f"{settings['model']}, {settings['target']}, {settings['strategy']}, {settings['precision']}"
    state = "" if record.status == "predicted" else f" {record.status}"
    memory = gigabytes(found["memory_planned"]) if "memory_planned" in found else "–"
    largest = f"{found['largest_batch']:,}" if "largest_batch" in found else "–"
    bounds = (
        readable(name, found.get(name)) for name in ("step_time_bound", "images_per_second_bound")
    )
    mfu = f"{found['mfu_ceiling']:.0%}" if "mfu_ceiling" in found else "–"
    return (
        label + state,
        f"{settings['batch_size']:,}",
        memory,
        largest,
        *bounds,
        mfu,
        readable("cost_per_epoch_bound", found.get("cost_per_epoch_bound")),
    )
