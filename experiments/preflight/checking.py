"""`check`: will any JAX program fit, how fast will it be, and what will it cost?"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from etils import epath
from rich.console import Console

from experiments import records as stored_records
from experiments.hardware import prices
from experiments.preflight import libraries, targets, verdict
from experiments.preflight.batches import BatchLimit, search
from experiments.preflight.check_table import check_table
from experiments.preflight.communication import communication_bound
from experiments.preflight.compiler import Compiler
from experiments.preflight.estimates import estimate_metrics, estimate_step
from experiments.preflight.estimates import remarks as estimate_remarks
from experiments.preflight.exported import export_step, flatten_step, is_array
from experiments.preflight.operation import Operation
from experiments.preflight.operations import operations
from experiments.preflight.result import CompileResult
from experiments.preflight.targets import Target
from experiments.records import Record
from jaxcnn.errors import InputError


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
        return text.getvalue().rstrip()


def check(
    step: Callable,
    state: Any,
    batch: Any,
    targets: Sequence[str] = targets.COLAB,
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
      targets: names as of ``python -m experiments.preflight --list-targets``.
      name: of the program, in the table and in the records.
      largest: whether to search for the largest batch that fits, for which `step` is traced with
        other batches.
      time_limit: seconds for one compilation.
      results: a folder for the records; none are written without it.

    Raises:
      InputError: an unknown target, a batch that does not divide among its devices, or a program
        whose FLOPs depend on its data.

    >>> import jax
    >>> weights = jax.ShapeDtypeStruct((784, 10), "float32")
    >>> images = jax.ShapeDtypeStruct((64, 784), "float32")
    >>> result = check(lambda w, x: w + x.T @ (x @ w), weights, images, ["cpu"], largest=False)
    >>> result.records[0].status
    'predicted'
    """
    resolved_targets = [_target(target) for target in targets]
    size = _batch_size(batch)
    for target in resolved_targets:
        if size % target.devices:
            raise InputError(
                f"batch of {size}: does not divide among the {target.devices} devices of "
                f"{target.name}; give a multiple of {target.devices}"
            )
    checked = tuple(
        _check(step, state, batch, target, name, largest, time_limit) for target in resolved_targets
    )
    if results is not None:
        for record in checked:
            stored_records.write(record, epath.Path(results))
    return CheckResult(checked)


def _target(name: str) -> Target:
    return targets.target(name)


def _batch_size(batch: Any) -> int:
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(batch) if is_array(leaf) and leaf.shape}
    if len(sizes) != 1:
        raise InputError(
            f"batch: the first axes of its arrays must have one size, not {sorted(sizes)}"
        )
    return sizes.pop()


def _resized(batch: Any, size: int) -> Any:
    """The shapes of a batch of another size."""

    def resize(leaf: Any) -> Any:
        if not (is_array(leaf) and leaf.shape):
            return leaf
        return jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(resize, batch)


def _check(
    step: Callable,
    state: Any,
    batch: Any,
    target: Target,
    name: str,
    largest: bool,
    time_limit: float,
) -> Record:
    size, limit = _batch_size(batch), None
    share = _resized(batch, size // target.devices)
    flat = flatten_step(step, state, share)
    try:
        kernels = operations(flat.function, *flat.arguments, platform=target.platform)
    except ValueError as error:  # of `equation_flops`
        raise InputError(f"{name}: {error}") from error
    precision = _precision(kernels)
    with Compiler(target, time_limit=time_limit) as compiler:

        def compile_batch(count: int) -> CompileResult:
            if missing := libraries.missing(target):
                return CompileResult("unsupported", missing)
            return compiler(export_step(flatten_step(step, state, _resized(batch, count)), target))

        result = compile_batch(size)
        can_search = result.state in ("compiled", "out_of_memory") and target.platform != "cpu"
        if largest and can_search:
            limit = search(
                lambda count: result if count == size else compile_batch(count),
                size,
                target.devices,
            )
    return _record(name, target, precision, size, kernels, result, limit)


def _precision(kernels: Sequence[Operation]) -> str:
    """The dtype in which most of the arithmetic is done."""
    work: dict[str, float] = {}
    for item in kernels:
        if item.flops and item.equation is not None:
            dtype = str(item.equation.invars[0].aval.dtype)
            work[dtype] = work.get(dtype, 0.0) + item.flops
    return max(work, key=lambda dtype: work[dtype], default="float32")


def _record(
    name: str,
    target: Target,
    precision: str,
    size: int,
    kernels: Sequence[Operation],
    result: CompileResult,
    limit: BatchLimit | None,
) -> Record:
    communication = communication_bound(result.collectives or (), target, [target.devices])
    estimate = estimate_step(kernels, target, precision, communication)
    price, _ = prices.price_of(target.device, result.kind or target.row, None, None)
    hourly = price * target.chips if price else None
    metrics = result.metrics | (limit.metrics if limit else {})
    metrics["flops_per_step"] = target.devices * sum(item.flops for item in kernels)
    if communication is not None:
        metrics["communication_bound"] = communication
    if estimate is not None:
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
            "batches_tried": list(limit.tries) if limit else [],
            "collectives": [
                {"kind": entry.kind, "count": entry.count, "bytes": entry.bytes}
                for entry in result.collectives or ()
            ],
            "remarks": [
                *(estimate_remarks(estimate) if estimate else ()),
                *verdict.remarks(result),
                *(limit.remarks if limit else ()),
            ],
        },
    )
