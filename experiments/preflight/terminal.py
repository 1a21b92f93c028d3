"""Prints targets and predicted records on the terminal."""

from collections.abc import Iterator, Sequence

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.preflight import libraries, target_groups, targets
from experiments.preflight.batches import RECOMPUTES
from experiments.preflight.estimates import ESTIMATE, MEASURED
from experiments.preflight.result import MEMORY_PARTS, format_bytes
from experiments.records import Record
from experiments.records.formatting import INTERVAL_ENDS, remarks, with_interval
from experiments.records.units import number, readable

_HEADINGS = (
    "case",
    "batch",
    "memory",
    "largest\nbatch",
    "step,\nestimated",
    "step,\nat best",
    "images/s,\nestimated",
    "$ an epoch,\nestimated",
)
_SPEED = ("step_time", "images_per_second")


def print_targets(console: Console) -> None:
    """Prints the known targets, their compilers, and what to install for the missing ones."""
    table = Table(box=rich.box.SIMPLE)
    for heading in ("target", "chips", "JAX devices", "device", "compiler"):
        table.add_column(heading)
    for name in targets.known_names():
        if name not in target_groups.GROUPS:
            table.add_row(*_target_cells(targets.target(name)))
    console.print(table)
    _print_plain(
        console,
        "also tpu-v5e:2x4 (a slice by its shape), gpu-h100-8 (eight GPUs in one machine), "
        "cpu-8 (simulated devices), and the groups",
    )
    for name, members in target_groups.GROUPS.items():
        _print_plain(console, f"{name}: {', '.join(members)}")
    missing = dict.fromkeys(libraries.missing(targets.target(name)) for name in target_groups.ALL)
    for line in filter(None, missing):
        _print_plain(console, line)


def print_line(console: Console, record: Record, place: int, total: int) -> None:
    """Prints one line about one of several cases, for progress."""
    seconds = record.provenance.get("case_seconds", 0.0)
    outcome = "fits" if record.status == "predicted" else f"{record.status}: {record.message}"
    _print_plain(console, f"{place}/{total}  {_label(record)}  {outcome}  {seconds:.0f} s")


def print_case(console: Console, record: Record) -> None:
    """Prints one case, a line per subject."""
    for subject, text in _lines(record):
        _print_plain(console, f"{subject:<10}{text}")


def print_cases(console: Console, records: Sequence[Record]) -> None:
    """Prints several cases, one row each, and below them their remarks."""
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "case" else "right", overflow="fold")
    for record in records:
        table.add_row(*map(escape, _cells(record)))
    console.print(table)
    fitting = sum(record.status == "predicted" for record in records)
    _print_plain(console, f"{fitting} of {len(records)} programs compile and fit")
    lines = dict.fromkeys(line for record in records for line in remarks(record))
    for line in lines:
        if not line.startswith((ESTIMATE, MEASURED)):  # they concern single cases
            _print_plain(console, f"note: {line}")


def _print_plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _target_cells(target: targets.Target) -> tuple[str, ...]:
    device = target.row or "this machine's processor"
    has_none = target.platform == "gpu" and not libraries.toolkits(target)
    compiler = "none" if has_none else libraries.compiler(target) or "not installed"
    return target.name, str(target.chips), str(target.devices), device, compiler


def _label(record: Record) -> str:
    settings = record.settings
    return (
        f"{settings['model']} on {settings['target']}, {settings['strategy']}, "
        f"{settings['precision']}, batch {settings['batch_size']}"
    )


def _lines(record: Record) -> Iterator[tuple[str, str]]:
    """Subject and text of each line about a case."""
    metrics, origin = record.metrics, record.provenance
    devices = f"{origin['device_count']} × {origin['device_kind']}"
    yield "target", f"{record.settings['target']}: {devices}, by {record.settings['compiler']}"
    yield "case", _label(record)
    yield "compiles", _verdict(record)
    if "memory_planned" in metrics and "memory_available" in metrics:
        yield "memory", _memory(metrics)
    if origin.get("batches_tried"):
        yield "largest", _largest_batch(record)
    if "flops_per_step" in metrics:
        flops, traffic, intensity = (
            readable(name, metrics[name])
            for name in ("flops_per_step", "bytes_per_step", "arithmetic_intensity")
        )
        yield "work", f"{flops} and {traffic} a step, {intensity}"
    if "step_time_bound" in metrics:
        yield from _time_and_cost(record)
        yield from _communication(record)
    for line in remarks(record):
        yield "note", line


def _verdict(record: Record) -> str:
    if record.status != "predicted":
        return f"{record.status}: {record.message}"
    seconds = record.metrics.get("compile_time", 0)
    return f"yes, in {seconds:.1f} s (optimization level: {record.provenance['level']})"


def _memory(metrics: dict[str, float]) -> str:
    planned, available = (
        format_bytes(metrics[name]) for name in ("memory_planned", "memory_available")
    )
    parts = [
        f"{part} {format_bytes(metrics[f'memory_{part}'])}"
        for part in MEMORY_PARTS
        if f"memory_{part}" in metrics
    ]
    detail = f": {', '.join(parts)}" if parts else ""
    return f"{planned} of {available} on a device{detail}"


def _largest_batch(record: Record) -> str:
    metrics, tries = record.metrics, record.provenance["batches_tried"]
    if "largest_batch" in metrics:
        fits = f"a batch of {metrics['largest_batch']:,} fits"
        failed = max(tries) > metrics["largest_batch"]
        refused = f", one of {max(tries):,} failed" if failed else ", more was not tried"
    else:
        fits, refused = "no batch that fits was found", ""
    if "smallest_refused_batch" in metrics:
        refused = f", one of {metrics['smallest_refused_batch']:,} does not"
    return f"{fits}{refused} ({len(tries)} batches tried){_recomputed(metrics)}"


def _recomputed(metrics: dict[str, float]) -> str:
    """Says that the largest batch recomputes activations; empty if it does not."""
    share = metrics.get("recomputed_flops", 1.0)
    if share <= RECOMPUTES:
        return ""
    lean = metrics["largest_batch_without_recomputing"]
    return (
        f"; it recomputes activations ({share - 1:.0%} more FLOPs); the largest batch tried "
        f"without recomputation is {lean:,}"
    )


def _time_and_cost(record: Record) -> Iterator[tuple[str, str]]:
    metrics, origin = record.metrics, record.provenance
    if "step_time_estimate" in metrics:
        step, rate = (with_interval(f"{name}_estimate", metrics) for name in _SPEED)
        yield "estimate", f"{step} a step, {rate}"
    if "cost_per_epoch_estimate" in metrics:
        cost = with_interval("cost_per_epoch_estimate", metrics)
        yield (
            "costs",
            f"{cost} an epoch of {origin['epoch_images']:,}, "
            f"at ${metrics['price_per_hour']:.3g} an hour",
        )
    step = readable("step_time_bound", metrics["step_time_bound"])
    rate = readable("images_per_second_bound", metrics["images_per_second_bound"])
    yield (
        "at best",
        f"{step} a step of the definition's FLOPs, {rate}, MFU {metrics['mfu_ceiling']:.0%}: "
        f"bound by {origin.get('limit')}",
    )


def _communication(record: Record) -> Iterator[tuple[str, str]]:
    metrics = record.metrics
    for entry in record.provenance.get("collectives") or ():
        total = f"{number(entry['bytes'])} bytes in total on a device"
        yield "sends", f"{entry['count']} × {entry['kind']}, {total}"
    if "communication_bound" in metrics:
        seconds = readable("communication_bound", metrics["communication_bound"])
        share = metrics.get("communication_share_estimate")
        part = f", {share:.1%} of the estimated step if none of it is hidden" if share else ""
        yield "exchange", f"at least {seconds}{part}"


def _cells(record: Record) -> tuple[str, ...]:
    metrics, settings = record.metrics, record.settings
    names = ("model", "target", "strategy", "precision")
    label = ", ".join(str(settings[name]) for name in names)
    status = "" if record.status == "predicted" else f" {record.status}"
    return (
        label + status,
        f"{settings['batch_size']:,}",
        format_bytes(metrics["memory_planned"]) if "memory_planned" in metrics else "–",
        f"{metrics['largest_batch']:,}" if "largest_batch" in metrics else "–",
        readable("step_time_estimate", metrics.get("step_time_estimate")),
        readable("step_time_bound", metrics.get("step_time_bound")),
        _short_interval("images_per_second_estimate", metrics),
        _short_interval("cost_per_epoch_estimate", metrics),
    )


def _short_interval(name: str, metrics: dict[str, float]) -> str:
    if name not in metrics:
        return "–"
    value, low, high = (number(metrics[name + end]) for end in INTERVAL_ENDS)
    return f"{value} ({low}–{high})"
