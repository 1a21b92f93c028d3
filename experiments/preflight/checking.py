"""`check`: will any JAX program fit, how fast will it be, and what will it cost?"""

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from experiments import records as stored_records
from experiments.config.bounds import MAX_SECONDS
from experiments.hardware import prices
from experiments.measure.flops import model_flops
from experiments.preflight import libraries, target_groups, verdict
from experiments.preflight import targets as known_targets
from experiments.preflight.batches import BatchLimit, search
from experiments.preflight.check_table import check_notes, check_table
from experiments.preflight.communication import communication_bound
from experiments.preflight.compiler import Compiler
from experiments.preflight.device_work import batch_size, device_work, precisions, resized_batch
from experiments.preflight.estimates import DeviceWork, estimate_metrics, estimate_step
from experiments.preflight.estimates import remarks as estimate_remarks
from experiments.preflight.exported import export_step, flatten_step
from experiments.preflight.result import CompileResult
from experiments.preflight.targets import Target
from experiments.preflight.time_model import TimeEstimate
from experiments.records import Record, provenance
from jaxcnn import info
from jaxcnn.errors import InputError, first_line


@dataclass(frozen=True)
class CheckResult:
    """What `check` found; as text, a table with a row for each target.

    Attributes:
      records: one for each target.
    """

    records: tuple[Record, ...]

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=160)
        console.print(check_table(self.records))
        for line in check_notes(self.records):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return text.getvalue().rstrip()


def check(
    step: Callable,
    state: Any,
    batch: Any,
    targets: str | Sequence[str] = target_groups.COLAB,
    *,
    name: str = "step",
    largest: bool = True,
    time_limit: float = 1800.0,
    results: str | None = None,
) -> CheckResult:
    """Compiles one call of a function for accelerators that are not attached; runs nothing.

    On several devices the batch is divided among them along its first axis, and the state is on
    each of them; the compiler adds the communication. Results of the shapes of the state take its
    memory, as if it were donated.

    Args:
      step: ``step(state, batch)``, any function that `jax.jit` can compile.
      state: a tree of arrays, or of `jax.ShapeDtypeStruct`.
      batch: the same; the first axis of each array counts examples.
      targets: names as of ``python -m experiments.preflight --list-targets``, groups included; a
        string is a comma-separated list.
      name: of the program, in the table and in the records.
      largest: whether to search for the largest batch that fits, for which `step` is traced with
        other batches.
      time_limit: seconds for one compilation.
      results: a folder for the records; none are written without it.

    Raises:
      InputError: an unknown target, a batch that does not divide among its devices, a time limit
        that is not positive, a name that cannot be part of a file's name, a folder that cannot be
        written, or a program whose FLOPs depend on its data.

    >>> import jax
    >>> weights = jax.ShapeDtypeStruct((784, 10), "float32")
    >>> images = jax.ShapeDtypeStruct((64, 784), "float32")
    >>> result = check(lambda w, x: w + x.T @ (x @ w), weights, images, ["cpu"], largest=False)
    >>> result.records[0].status
    'predicted'
    """
    if not (isinstance(time_limit, int | float) and 0 < time_limit <= MAX_SECONDS):
        raise InputError(f"time_limit={time_limit!r}: must be a positive number of seconds")
    if not re.fullmatch(r"[\w.+ -]+", name) or name.startswith("."):
        raise InputError(
            f"name={name!r}: it is part of a file's name; write letters, digits, '_', '-' and '.'"
        )
    folder = None if results is None else stored_records.prepare_folder(str(results))
    names = targets if isinstance(targets, str) else ",".join(targets)
    resolved_targets = known_targets.find(names)
    _require_divisible(batch, resolved_targets)
    checked = tuple(
        _check(step, state, batch, target, name, largest, time_limit) for target in resolved_targets
    )
    if folder is not None:
        for record in checked:
            stored_records.write(record, folder)
    return CheckResult(checked)


def _require_divisible(batch: Any, targets: Sequence[Target]) -> None:
    size = batch_size(batch)
    for target in targets:
        if size % target.devices:
            raise InputError(
                f"batch of {size}: does not divide among the {target.devices} devices of "
                f"{target.name}; give a multiple of {target.devices}"
            )


def _check(
    step: Callable,
    state: Any,
    batch: Any,
    target: Target,
    name: str,
    largest: bool,
    time_limit: float,
) -> Record:
    size, limit = batch_size(batch), None
    try:
        work = device_work(step, state, batch, target)
        whole = flatten_step(step, state, batch)
        flops = model_flops(whole.function, *whole.arguments)
    except ValueError as error:  # of `model_flops`
        raise InputError(f"{name}: {error}") from error
    with Compiler(target, time_limit=time_limit) as compiler:

        def compile_batch(count: int) -> CompileResult:
            if missing := libraries.missing(target):
                return CompileResult("unsupported", missing)
            resized = batch if count == size else resized_batch(batch, count)
            try:
                request = export_step(flatten_step(step, state, resized), target)
            except Exception as error:  # whatever the function raises
                if count == size:
                    raise
                reason = first_line(error)
                return CompileResult("failed", f"the function takes no batch of {count}: {reason}")
            return compiler(request)

        result = compile_batch(size)
        can_search = result.state in ("compiled", "out_of_memory") and target.platform != "cpu"
        if largest and can_search:
            limit = search(
                lambda count: result if count == size else compile_batch(count),
                size,
                target.devices,
            )
        warnings = tuple(filter(None, (libraries.untested(target), compiler.cache.problem)))
    collectives = result.collectives if target.devices > 1 else ()
    communication = communication_bound(collectives, target, [target.devices])
    work = dataclasses.replace(work, communication=communication)
    return _record(name, target, size, flops, work, result, limit, warnings)


def _record(
    name: str,
    target: Target,
    size: int,
    flops: int,
    work: DeviceWork,
    result: CompileResult,
    limit: BatchLimit | None,
    warnings: Sequence[str],
) -> Record:
    precision, matmul_precision = precisions(work.operations)
    estimate = estimate_step(work, target, precision, matmul_precision)
    price, _ = prices.price_of(target.device, result.kind or target.row, None, None)
    hourly = price * target.chips if price else None
    metrics = result.metrics | (limit.metrics if limit else {})
    metrics["flops_per_step"] = flops
    if work.communication:
        metrics["communication_bound"] = work.communication
    if isinstance(estimate, TimeEstimate):
        metrics |= estimate_metrics(estimate, size, hourly, None)
    if hourly:
        metrics["price_per_hour"] = hourly
    status, message = verdict.verdict(result, target)
    return Record(
        "check",
        f"{name}-{target.name}-b{size}",
        status,
        message,
        settings={
            "program": name,
            "target": target.name,
            "batch_size": size,
            "precision": precision,
        },
        metrics=metrics,
        provenance={
            "accelerator": result.kind or target.row,
            "platform": target.platform,
            "device_count": target.devices,
            "compiler": libraries.compiler(target),
            "matmul_precision": matmul_precision or "default",
            "machine": provenance.machine(),
            "source": provenance.source_revision(),
            "versions": info.package_versions(),
            "time": provenance.now(),
            "batches_tried": list(limit.tries) if limit else [],
            "collectives": result.collectives_as_json,
            "remarks": [
                *estimate_remarks(estimate),
                *verdict.remarks(result),
                *(limit.remarks if limit else ()),
                *warnings,
            ],
        },
    )
