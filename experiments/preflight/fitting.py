"""Fits the time model to runs of known rates, and predicts runs that the fit has not seen.

The fit is by maximum a posteriori, in logarithms. Each parameter has a prior, so that few runs
(five of TPUs) move it only as far as they can. Each implementation has a factor on time: the
same network in the same precision on the same card differs by up to 1.6 between published
implementations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from experiments.preflight.measured_runs import calibration_runs
from experiments.preflight.published_runs import XLA_ON_TPU, TrainingRun, program_costs
from experiments.preflight.time_model import (
    FAMILIES,
    Fit,
    Kernels,
    Parameters,
    Rates,
    is_small,
    launch_time,
    rates,
    total_time,
)

# The median of each parameter's prior, and one standard deviation as a factor. For a TPU, whose
# compiler fuses more than the rule of `operations` does, the share of the bandwidth is larger: of
# ResNet-50 at batch 256 it counts 83.8 GB, the rule 98.0.
PRIORS = {
    "half": (0.5, 1.5),
    "tf32": (0.5, 1.5),
    "float32": (0.7, 1.3),
    "ridge": (0.3, 1.5),
    "memory": (0.75, 1.3),
    "grouped_memory": (0.4, 2.0),
    "launch": (5e-6, 1.2),
    "overlap": (2.0, 1.5),
}
TPU_PRIORS = PRIORS | {"memory": (0.87, 1.3)}
PRIORS_OF = {"gpu": PRIORS, "tpu": TPU_PRIORS}
_MEDIANS = {
    family: {name: median for name, (median, _) in priors.items()}
    for family, priors in PRIORS_OF.items()
}
SOFTWARE_FACTOR = 1.25  # one standard deviation between implementations
RUN_FACTOR = 1.1  # one standard deviation of a run that the model explains no further

Software = tuple[str, str]  # a name and a precision


@dataclass(frozen=True)
class FitResult:
    """Fitted parameters.

    Attributes:
      parameters: of each family.
      software: factor on time of each implementation in each precision.
    """

    parameters: dict[str, Parameters]
    software: dict[Software, float]

    def predict(self, run: TrainingRun, *, knows_software: bool = True) -> float:
        """Seconds of a step; of unknown software without its factor."""
        limits = _limits(run)
        seconds = total_time(_kernels(run), limits, self.parameters[limits.family])
        return seconds * (self.software.get(_software(run), 1.0) if knows_software else 1.0)


@dataclass(frozen=True)
class HeldOut:
    """A run predicted by a fit that has not seen it.

    Attributes:
      run: the run.
      seconds: predicted time of a step, in the software of the run.
      seconds_any: the same for software that is not known, as for a user's own program.
    """

    run: TrainingRun
    seconds: float
    seconds_any: float

    @property
    def rate(self) -> float:
        """Predicted images/s."""
        return self.run.batch / self.seconds

    @property
    def error(self) -> float:
        """Predicted time divided by the measured one, minus 1."""
        return self.seconds / self.run.step_time - 1

    @property
    def error_any(self) -> float:
        """The same for software that is not known."""
        return self.seconds_any / self.run.step_time - 1


def fit(runs: Sequence[TrainingRun]) -> FitResult:
    """Fits the parameters to runs of known rates.

    Runs of small programs (`time_model.is_small`, by the medians of the priors) are left out.
    """
    priors = [
        (family, name, median, factor)
        for family in FAMILIES
        for name, (median, factor) in PRIORS_OF[family].items()
    ]
    software = sorted({_software(run) for run in runs if run.software != XLA_ON_TPU})
    rows = [(run, _kernels(run), _limits(run)) for run in runs if not _is_small(run, _MEDIANS)]

    def unpack(deviations: np.ndarray) -> FitResult:
        values = iter(deviations)
        parameters: dict[str, Parameters] = {family: {} for family in FAMILIES}
        for family, name, median, factor in priors:
            parameters[family][name] = float(median * factor ** next(values))
        return FitResult(
            parameters, {key: float(SOFTWARE_FACTOR ** next(values)) for key in software}
        )

    def residuals(deviations: np.ndarray) -> np.ndarray:
        result = unpack(deviations)
        misses = [
            math.log(
                total_time(kernels, limits, result.parameters[limits.family])
                * result.software.get(_software(run), 1.0)
                / run.step_time
            )
            for run, kernels, limits in rows
        ]
        return np.concatenate([np.array(misses) / math.log(RUN_FACTOR), deviations])

    start = np.zeros(len(priors) + len(software))
    return unpack(least_squares(residuals, start, method="lm").x)


def without_chip(chips: Sequence[str] = ()) -> list[HeldOut]:
    """Runs, each predicted by a fit without any run of its chip.

    Args:
      chips: by `TrainingRun.chip`; empty for all.
    """
    runs = calibration_runs()
    return [
        _held_out(result, run)
        for chip in chips or dict.fromkeys(run.chip for run in runs)
        for result in [fit([run for run in runs if run.chip != chip])]
        for run in runs
        if run.chip == chip
    ]


def without_run() -> list[HeldOut]:
    """Every run, predicted by a fit to all the others."""
    runs = calibration_runs()
    return [_held_out(fit([other for other in runs if other is not run]), run) for run in runs]


def final_fit() -> Fit:
    """The parameters fitted to all runs, and the uncertainty of an estimate."""
    parameters = fit(calibration_runs()).parameters
    held_out = without_chip()
    small = [item for item in held_out if _is_small(item.run, parameters)]
    larger = [item for item in held_out if not _is_small(item.run, parameters)]
    return Fit(parameters, _uncertainty(larger), _uncertainty(small))


def _uncertainty(items: Sequence[HeldOut]) -> float:
    if not items:
        raise ValueError("no runs of small programs, or none of larger ones")
    misses = [math.log(item.seconds_any / item.run.step_time) for item in items]
    return math.exp(math.sqrt(math.fsum(miss**2 for miss in misses) / len(misses)))


def _is_small(run: TrainingRun, parameters: dict[str, Parameters]) -> bool:
    kernels, limits = _kernels(run), _limits(run)
    of_family = parameters[limits.family]
    return is_small(launch_time(kernels, of_family), total_time(kernels, limits, of_family))


def _kernels(run: TrainingRun) -> Kernels:
    return Kernels.of(program_costs()[run.program])


def _held_out(result: FitResult, run: TrainingRun) -> HeldOut:
    return HeldOut(run, result.predict(run), result.predict(run, knows_software=False))


def _software(run: TrainingRun) -> Software:
    return run.software, run.precision


def _limits(run: TrainingRun) -> Rates:
    limits = rates(run.hardware, run.precision)
    if limits is None:
        raise ValueError(f"no published peak or bandwidth of {run.device} for {run.precision}")
    return limits
