"""Statistics of samples from several launches of a program: medians, and intervals between them.

Samples of one process share what was decided when it started: where its memory lies, which pages it
got, what else ran on the machine. An interval from one process is therefore too narrow for the next
one. Here each launch counts as one observation, the median of its samples, and the interval is that
of Student's t for the logarithms of these observations. It needs two launches, and is wide with so
few.

References:
  Kalibera & Jones 2013, *Rigorous Benchmarking in Reasonable Time*, §6: the samples of a process
  are averaged first, and the variance is that between processes (batch means).
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from scipy import special

from experiments.measure.intervals import median_interval
from experiments.measure.noise import compare

Launches = Sequence[Sequence[float]]  # seconds, by launch


def launch_medians(samples: Launches) -> list[float]:
    """The median of each launch."""
    return [statistics.median(launch) for launch in samples]


def median_of_launches(samples: Launches) -> tuple[float, float, float]:
    """The median over launches of their medians, and its interval.

    With a probability of 95 % the interval contains the mean of the logarithms.

    Args:
      samples: seconds, by launch.

    Returns:
      The median, and the low and the high end; those of `intervals.median_interval` if there is
      only one launch.

    >>> median, low, high = median_of_launches([[1.0, 1.0, 9.0], [1.1], [1.2]])
    >>> median, f"{low:.2f}", f"{high:.2f}"
    (1.1, '0.87', '1.38')
    """
    medians = launch_medians(samples)
    if len(samples) == 1:
        return medians[0], *median_interval(samples[0])
    return statistics.median(medians), *_student_interval(medians, 0.95)


def compare_launches(
    ours: Launches, theirs: Launches, *, paired: bool = True
) -> tuple[float, float, float]:
    """The time of one program relative to that of another, and its 98 % interval.

    Args:
      ours, theirs: seconds, by launch.
      paired: whether the nth samples of a launch are from one round, in which the programs were
        timed in turn; else one program was timed after the other.

    Returns:
      The median over launches of the median ratio over rounds, or of the ratio of medians if they
      are not paired, and the low and the high end of the interval; those of `noise.compare` if
      there is only one launch.

    >>> ratio, low, high = compare_launches([[1.0, 1.0], [1.2, 1.2]], [[2.0, 2.0], [2.0, 2.0]])
    >>> f"{ratio:.3f}", low < 0.5, high > 0.6
    ('0.550', True, True)
    """
    if len(ours) == 1:
        comparison = compare(ours[0], theirs[0], paired=paired)
        return comparison.ratio, comparison.low, comparison.high
    ratios = [
        statistics.median(a / b for a, b in zip(*launch, strict=True))
        if paired
        else statistics.median(launch[0]) / statistics.median(launch[1])
        for launch in zip(ours, theirs, strict=True)
    ]
    return statistics.median(ratios), *_student_interval(ratios, 0.98)


def _student_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    logarithms = np.log(values)
    count = len(logarithms)
    t = special.stdtrit(count - 1, (1 + confidence) / 2)
    mean, half = np.mean(logarithms), t * np.std(logarithms, ddof=1) / math.sqrt(count)
    return float(np.exp(mean - half)), float(np.exp(mean + half))
