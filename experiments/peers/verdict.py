"""Results of the peers: whether they agree, which is the fastest, and ours compared with it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.measure.noise import compare, median_interval

# The largest differences allowed: of logits, relative to the largest logit, and of the loss of the
# first step, relative to the loss, from ours; and of the loss of the second step, which shows a
# wrong gradient, from the median of all peers, as none of them is the reference. Adam takes full
# steps in the direction of the rounding errors of gradients near zero, and batch norm over four
# rows magnifies them: there the libraries' second losses differ by up to 0.13, elsewhere by less
# than 1e-4.
TOLERANCES = {"logits": 1e-4, "first_loss": 1e-3, "second_loss": 0.1}
RIVALS = ("torch", "keras")  # plain Flax is compared with ours separately


def check_agreement(
    outputs: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Checks that all peers compute the same.

    Args:
      outputs: by peer, including ``ours``: the logits and losses of `worker.PeerMethods.outputs`.

    Returns:
      The differences of each other peer from ours; and a sentence for each peer, ours included,
      whose difference is larger than allowed.

    >>> ours = {"logits": [[1.0, -4.0]], "losses": [2.0, 1.0]}
    >>> torch = {"logits": [[1.0, -3.0]], "losses": [2.0, 1.0]}
    >>> check_agreement({"ours": ours, "torch": torch})[1]
    {'torch': 'torch computes another network: logits differ by 0.25, allowed are 0.0001'}
    """
    second_losses = {peer: result["losses"][1] for peer, result in outputs.items()}
    finite = [loss for loss in second_losses.values() if math.isfinite(loss)]
    median = statistics.median_low(finite or [math.nan])
    from_ours = {peer: _differences(result, outputs["ours"]) for peer, result in outputs.items()}
    disagreements = {}
    for peer, differences in from_ours.items():
        judged = differences | {"second_loss": _relative(second_losses[peer], median)}
        if sentence := _first_disagreement(peer, judged):
            disagreements[peer] = sentence
    del from_ours["ours"]
    return from_ours, disagreements


def _first_disagreement(peer: str, differences: Mapping[str, float]) -> str | None:
    for name, difference in differences.items():
        if not difference <= TOLERANCES[name]:  # NaN is a disagreement
            verb = "differ" if name == "logits" else "differs"
            return (
                f"{peer} computes another network: {name.replace('_', ' ')} {verb} by "
                f"{difference:.2g}, allowed are {TOLERANCES[name]:g}"
            )
    return None


def _relative(value: float, reference: float) -> float:
    return abs(value - reference) / abs(reference)


def _differences(result: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    pairs = [
        (a, b)
        for row, own in zip(result["logits"], ours["logits"], strict=True)
        for a, b in zip(row, own, strict=True)
    ]
    losses = [_relative(a, b) for a, b in zip(result["losses"], ours["losses"], strict=True)]
    largest = max(abs(b) for _, b in pairs)
    return {
        "logits": max(abs(a - b) for a, b in pairs) / largest,
        "first_loss": losses[0],
        "second_loss": losses[1],
    }


def compute_metrics(
    samples: Mapping[str, Sequence[float]], memory: Mapping[str, int | None]
) -> tuple[dict[str, float], dict[str, str | None]]:
    """Metrics of ours, also relative to the other peers.

    Args:
      samples: seconds, one per round, by ``PEER: train``, ``PEER: infer`` and ``ours: once``.
      memory: peak resident bytes of a train step, by peer.

    Returns:
      Metrics by the names of `METRICS`; and the fastest peers in training and in inference.
    """
    low, high = median_interval(samples["ours: train"])
    metrics = {
        "step_time": statistics.median(samples["ours: train"]),
        "step_time_low": low,
        "step_time_high": high,
        "call_time": statistics.median(samples["ours: infer"]),
        "once_step_time": statistics.median(samples["ours: once"]),
    }
    fastest = {work: _fastest(samples, work) for work in ("train", "infer")}
    metrics |= _compare(samples, "train", fastest["train"], "train_over_best_peer")
    metrics |= _compare(samples, "infer", fastest["infer"], "inference_over_best_peer")
    metrics |= _compare(samples, "train", "flax", "train_over_flax")
    metrics |= _compare(samples, "infer", "flax", "inference_over_flax")
    for name, work in (("best_peer_step_time", "train"), ("best_peer_call_time", "infer")):
        if fastest[work]:
            metrics[name] = statistics.median(samples[f"{fastest[work]}: {work}"])
    metrics |= _memory(memory)
    return metrics, {"best_peer_train": fastest["train"], "best_peer_inference": fastest["infer"]}


def _fastest(samples: Mapping[str, Sequence[float]], work: str) -> str | None:
    """The rival with the smallest median; None if there is none."""
    rivals = sorted({name.partition(":")[0] for name in samples if name.startswith(RIVALS)})
    medians = {peer: statistics.median(samples[f"{peer}: {work}"]) for peer in rivals}
    return min(medians, key=medians.get, default=None)


def _compare(
    samples: Mapping[str, Sequence[float]], work: str, peer: str | None, name: str
) -> dict[str, float]:
    """The median ratio of our times to a peer's over the rounds, and its 98 % interval."""
    theirs = samples.get(f"{peer}: {work}")
    if theirs is None:
        return {}
    comparison = compare(samples[f"ours: {work}"], theirs, paired=True)
    return {
        name: comparison.ratio,
        f"{name}_low": comparison.low,
        f"{name}_high": comparison.high,
    }


def _memory(memory: Mapping[str, int | None]) -> dict[str, float]:
    if (ours := memory.get("ours")) is None:
        return {}
    if theirs := memory.get("torch"):
        return {"memory_peak": ours, "memory_over_pytorch": ours / theirs}
    return {"memory_peak": ours}
