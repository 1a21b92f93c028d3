"""Measures one case; every failure of the case itself becomes a result."""

import dataclasses
import math
import traceback

from experiments.harness.study import Case, CaseResult, Context, Study
from experiments.measure import throttling
from experiments.measure.memory import is_out_of_memory
from jaxcnn import distributed, training
from jaxcnn.errors import InputError


def execute(study: Study, case: Case, context: Context) -> CaseResult:
    """Measures a case in this process.

    With several processes, the others would wait forever for one in which a case has failed: any
    exception but those that all of them raise is passed on, and ends the run.

    Raises:
      InputError: the case is impossible as configured, or the file of its model has changed.
      Interrupted: the user interrupted it; its checkpoint was kept.
    """
    case.check_model()
    with throttling.watch(context.backend.devices) as remarks:
        result = _finite(_measure(study, case, context))
    if not remarks:
        return result
    remarks = [*result.provenance.get("remarks", []), *remarks]
    return dataclasses.replace(result, provenance=result.provenance | {"remarks": remarks})


def _finite(result: CaseResult) -> CaseResult:
    """The result; a failure if a loss or an accuracy is not finite, whatever else was measured."""
    bad = sorted(
        name
        for name, value in result.metrics.items()
        if ("loss" in name or "accuracy" in name) and not math.isfinite(value)
    )
    if result.status != "ok" or not bad:
        return result
    message = f"not finite: {', '.join(bad)}; the weights or the data may be damaged"
    return dataclasses.replace(result, status="failed", message=message)


def _measure(study: Study, case: Case, context: Context) -> CaseResult:
    try:
        return study.measure(case, context)
    except (InputError, training.Interrupted, BrokenPipeError):
        raise
    except training.NonFiniteLossError as error:
        return CaseResult(status="failed", message=str(error), curves=error.history.epochs)
    except Exception as error:
        if distributed.is_distributed():
            raise
        return CaseResult(
            status="out_of_memory" if is_out_of_memory(error) else "failed",
            message=f"{type(error).__name__}: {error}",
            provenance={"traceback": traceback.format_exc()},
        )
