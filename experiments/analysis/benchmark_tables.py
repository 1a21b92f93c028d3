"""Tables of the benchmarks of the CPU kernels, in Markdown, from their records.

The samples of such a record are seconds by side: ours, and what it is compared with.
"""

import statistics
from collections.abc import Callable, Sequence

from experiments.analysis.markdown import by_place, table
from experiments.records import Record

_TORCH = "torch, "  # the sides that are PyTorch's, by memory format and whether compiled


def layers_table(records: Sequence[Record]) -> str:
    """`benchmarks.cpu_layers`: plain Flax before and after `jaxcnn.accelerate`, and PyTorch."""
    columns = ("what", "call", "before, ms", "after, ms", "before ÷ after", "PyTorch, ms")

    def cells(record: Record) -> tuple[str, ...]:
        return (
            record.settings["what"],
            record.settings["call"],
            _milliseconds(before := _median(record, "before")),
            _milliseconds(after := _median(record, "after")),
            f"{before / after:.3g}",
            _milliseconds(_torch(record)),
        )

    return _table(columns, records, cells)


def half_precision_table(records: Sequence[Record]) -> str:
    """`benchmarks.cpu_layers`: train steps in ``bfloat16`` beside float32 and PyTorch's."""
    columns = (
        "train step of",
        "batch",
        "float32, ms",
        "bfloat16, ms",
        "bfloat16 ÷ float32",
        "PyTorch, bfloat16, ms",
        "ours ÷ PyTorch",
    )

    def cells(record: Record) -> tuple[str, ...]:
        return (
            f"`{record.settings['model']}`",
            str(record.settings["batch_size"]),
            _milliseconds(single := _median(record, "float32")),
            _milliseconds(half := _median(record, "bfloat16")),
            f"{half / single:.2f}",
            _milliseconds(peer := _torch(record)),
            "–" if peer is None else f"{half / peer:.2f}",
        )

    return _table(columns, records, cells)


def lowerings_table(records: Sequence[Record]) -> str:
    """`benchmarks.lowerings`: a train step by JAX's own operations, and by ours."""
    columns = ("called", "compiler option", "JAX's own, ms", "ours, ms", "ours ÷ JAX's")

    def cells(record: Record) -> tuple[str, ...]:
        return (
            record.settings["called"],
            record.settings["compiler_option"],
            _milliseconds(own := _median(record, "jax")),
            _milliseconds(ours := _median(record, "jaxcnn")),
            f"{ours / own:.2g}",
        )

    return _table(columns, records, cells)


def estimates_table(records: Sequence[Record]) -> str:
    """`benchmarks.estimates`: train steps predicted from single kernels, and measured.

    Measured is the shortest of the samples, as for the kernels. Above each table stand the median
    and the largest of its errors.
    """
    columns = (
        "network",
        "batch",
        "measured, ms",
        "predicted, ms",
        "error",
        "from other networks' kernels, ms",
        "error",
    )

    sides = "predicted", "predicted_from_others"

    def error(record: Record, side: str) -> float:
        return _median(record, side) / min(record.samples["measured"]) - 1

    def cells(record: Record) -> tuple[str, ...]:
        measured = _milliseconds(min(record.samples["measured"]))
        pairs = [
            (_milliseconds(_median(record, side)), f"{error(record, side):+.0%}") for side in sides
        ]
        return (*_network_and_batch(record), measured, *pairs[0], *pairs[1])

    def summary(records: Sequence[Record]) -> str:
        def summary_of(side: str) -> str:
            errors = [abs(error(record, side)) for record in records]
            return f"median error {statistics.median(errors):.0%}, largest {max(errors):.0%}"

        own, others = map(summary_of, sides)
        return f"Predicted: {own}; from other networks' kernels: {others}."

    return _table(columns, records, cells, summary)


def memory_table(records: Sequence[Record]) -> str:
    """`benchmarks.memory_plans`: the compiler's plans of train steps, and the observed peaks."""
    columns = ("network", "batch", "planned, MB", "observed, MB", "error")

    def cells(record: Record) -> tuple[str, ...]:
        planned, observed = (record.metrics[f"memory_{what}"] for what in ("planned", "peak"))
        megabytes = (f"{size / 1e6:,.1f}" for size in (planned, observed))
        return (*_network_and_batch(record), *megabytes, f"{planned / observed - 1:+.1%}")

    return _table(columns, records, cells)


def _network_and_batch(record: Record) -> tuple[str, str]:
    settings = record.settings
    return settings["model"], f"{settings['batch']} × {settings['image_size']}²"


def convolutions_table(records: Sequence[Record]) -> str:
    """`benchmarks.convolutions`: GFLOP/s of single convolutions."""
    columns = ("convolution", "call", "direct", "default", "PyTorch")

    def cells(record: Record) -> tuple[str, ...]:
        return (
            record.settings["convolution"],
            record.settings["call"],
            *(
                "–" if seconds is None else f"{record.settings['flops'] / seconds / 1e9:.0f}"
                for seconds in (
                    _median(record, "direct"),
                    _median(record, "default"),
                    _torch(record),
                )
            ),
        )

    return _table(columns, records, cells)


def _table(
    columns: tuple[str, ...],
    records: Sequence[Record],
    cells: Callable[[Record], tuple[str, ...]],
    summary: Callable[[Sequence[Record]], str] | None = None,
) -> str:
    """A table for each machine, below its name and the summary; rows in the benchmark's order."""
    if not records:
        raise ValueError("no records; run the benchmark")

    def content(group: Sequence[Record]) -> str:
        summaries = [summary(group)] if summary else []
        return "\n\n".join([*summaries, table(columns, [cells(record) for record in group])])

    rows = sorted(records, key=lambda record: record.provenance["row"])
    return by_place(rows, _where, content)


def _median(record: Record, side: str) -> float:
    return statistics.median(record.samples[side])


def _torch(record: Record) -> float | None:
    """The fastest of PyTorch's variants; None if PyTorch was not installed."""
    sides = [side for side in record.samples if side.startswith(_TORCH)]
    return min((_median(record, side) for side in sides), default=None)


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def _where(record: Record) -> str:
    origin = record.provenance
    torch = origin["peer_versions"].get("torch")
    versions = [f"jax {origin['versions']['jax']}", *([f"PyTorch {torch}"] if torch else [])]
    return f"{origin['accelerator']}, {origin['host_cores']} processors, {', '.join(versions)}"
