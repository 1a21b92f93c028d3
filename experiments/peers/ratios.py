"""Our times and memory, and their ratios to those of the other peers, over several launches."""

import statistics
from collections.abc import Mapping, Sequence

from experiments.measure.launches import Launches, compare_launches, median_of_launches

CONTENDER = 1.25  # times as long as the fastest rival: more than launches of a program differ
RIVALS = ("torch", "keras")  # plain Flax is compared with ours separately
# Metric, our samples, and the work of the best peer that they are compared with.
RATIOS_TO_BEST_PEER = (
    ("train_over_best_peer", "ours: train", "train"),
    ("many_steps_over_best_peer", "ours: many_steps", "train"),
    ("inference_over_best_peer", "ours: infer", "infer"),
    ("frozen_inference_over_best_peer", "ours frozen: infer", "infer"),
)
RATIOS_TO_FLAX = (("train_over_flax", "train"), ("inference_over_flax", "infer"))


def compute_metrics(
    samples: Mapping[str, Launches],
    memory: Mapping[str, Sequence[int]],
    *,
    paired: bool = True,
) -> tuple[dict[str, float], dict[str, str | None]]:
    """Metrics of ours, also relative to the other peers.

    Args:
      samples: seconds by launch and round, by ``PEER: train`` and ``PEER: infer``, and by ``ours:
        many_steps``. Ours has all launches, others may have the first ones only.
      memory: peak resident bytes of a train step by launch, by peer; without the peers for which
        the system does not report it.
      paired: whether the peers were timed in turn; else one after the other.

    Returns:
      Metrics by the names of `METRICS`; and the fastest peers in training and in inference.
    """
    step_time, low, high = median_of_launches(samples["ours: train"])
    metrics = {
        "step_time": step_time,
        "step_time_low": low,
        "step_time_high": high,
        "call_time": _median(samples["ours: infer"]),
        "many_steps_time": _median(samples["ours: many_steps"]),
    }
    if "ours frozen: infer" in samples:
        metrics["frozen_call_time"] = _median(samples["ours frozen: infer"])
    fastest = {work: _fastest(samples, work) for work in ("train", "infer")}
    for name, ours, theirs in RATIOS_TO_BEST_PEER:
        metrics |= _compare(samples, ours, f"{fastest[theirs]}: {theirs}", name, paired)
    for name, work in RATIOS_TO_FLAX:
        metrics |= _compare(samples, f"ours: {work}", f"flax: {work}", name, paired)
    for name, work in (("best_peer_step_time", "train"), ("best_peer_call_time", "infer")):
        if fastest[work]:
            metrics[name] = _median(samples[f"{fastest[work]}: {work}"])
    metrics |= _memory(memory)
    return metrics, {"best_peer_train": fastest["train"], "best_peer_inference": fastest["infer"]}


def contenders(samples: Mapping[str, Sequence[float]]) -> dict[str, tuple[str, ...]]:
    """The peers that may be the fastest in some work, judged by one launch: ours among them.

    Args:
      samples: of the launch, seconds by round, by ``PEER: WORK``.

    Returns:
      All works of ours, also frozen, and of each rival those in which it takes at most `CONTENDER`
      times as long as the fastest one; by peer.

    >>> contenders({"ours: infer": [9.0], "torch: infer": [1.0], "keras: infer": [1.5]})
    {'ours': ('infer',), 'torch': ('infer',)}
    """
    launches = {name: [each] for name, each in samples.items()}
    limits = {}
    for work in ("train", "infer"):
        fastest = _fastest(launches, work)
        limits[work] = CONTENDER * _median(launches[f"{fastest}: {work}"]) if fastest else 0.0
    works: dict[str, tuple[str, ...]] = {}
    for name, each in launches.items():
        peer, _, work = name.partition(": ")
        is_fast = peer.startswith(RIVALS) and _median(each) <= limits[work]
        if peer.startswith("ours") or is_fast:
            works[peer] = (*works.get(peer, ()), work)
    return works


def _median(samples: Launches) -> float:
    return median_of_launches(samples)[0]


def _fastest(samples: Mapping[str, Launches], work: str) -> str | None:
    """The rival with the smallest median; None if there is none."""
    suffix = f": {work}"
    medians = {
        name.removesuffix(suffix): _median(launches)
        for name, launches in sorted(samples.items())
        if name.startswith(RIVALS) and name.endswith(suffix)
    }
    return min(medians, key=lambda peer: medians[peer], default=None)


def _compare(
    samples: Mapping[str, Launches], ours: str, theirs: str, name: str, paired: bool
) -> dict[str, float]:
    """The ratio of our times to a peer's, and its interval; empty if one of them has no samples."""
    if not {ours, theirs} <= samples.keys():
        return {}
    count = len(samples[theirs])  # plain Flax has one launch
    ratio, low, high = compare_launches(samples[ours][:count], samples[theirs], paired=paired)
    return {name: ratio, f"{name}_low": low, f"{name}_high": high}


def _memory(memory: Mapping[str, Sequence[int]]) -> dict[str, float]:
    if "ours" not in memory:
        return {}
    metrics = {"memory_peak": statistics.median(memory["ours"])}
    if "torch" in memory:
        ratio = metrics["memory_peak"] / statistics.median(memory["torch"])
        metrics["memory_over_pytorch"] = ratio
    return metrics
