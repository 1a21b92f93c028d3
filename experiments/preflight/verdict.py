"""What the result of a compilation means for a record: its status, a message and remarks."""

from experiments.preflight import libraries
from experiments.preflight.result import CompileResult, format_bytes
from experiments.preflight.target_devices import GPU_MEMORY_SHARE
from experiments.preflight.targets import Target

_PLAN = "memory is the compiler's plan"
_UNKNOWN_COLLECTIVES = "compiled, collectives unknown: the compiler cannot print the program"


def verdict(result: CompileResult, target: Target) -> tuple[str, str]:
    """Status and message of the record.

    >>> from experiments.preflight.targets import target
    >>> verdict(CompileResult("failed", "it hangs"), target("gpu-t4"))
    ('failed', 'it hangs')
    """
    if result.state == "lowered":
        return "unsupported", f"lowered only: {libraries.missing(target)}"
    if result.state == "compiled" and not result.fits:
        planned, available = format_bytes(result.memory.total), format_bytes(result.available)
        share = f" ({GPU_MEMORY_SHARE:.0%} of the GPU's memory, the share that JAX takes)"
        return "out_of_memory", (
            f"compiles, but does not fit: {planned} planned on a device, {available} available"
            f"{share if target.platform == 'gpu' else ''}"
        )
    return "predicted" if result.state == "compiled" else result.state, result.message


def remarks(result: CompileResult) -> tuple[str, ...]:
    """What a reader of the metrics should know."""
    plan = (_PLAN,) if result.memory else ()
    is_unknown = result.state == "compiled" and result.collectives is None
    return (*plan, *((_UNKNOWN_COLLECTIVES,) if is_unknown else ()))
