"""From what the peers answered to figures: do they agree, who is best, and ours against it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.measure.noise import compare, median_interval

# Largest differences: of logits over the largest logit and of the first step's loss over the loss, from ours; and of the second's, by
# which a gradient that is wrong is seen, from the median of all, as none of them is the right one. Adam makes full steps of the rounding
# of gradients near zero, and batch norm over four rows magnifies them: there the libraries' second losses lie up to 0.13 from one
# another, elsewhere within 1e-4.
TOLERANCES = {"logits": 1e-4, "first_loss": 1e-3, "second_loss": 0.1}
RIVALS = ("torch", "keras")  # plain Flax is held against ours by itself


def agreed(
    answers: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """How far each peer's answers lie from ours, and of each that lies too far, ours among them, a sentence.

    Args:
      answers: of `worker.Predictions.agreement`, by peer, ``ours`` among them.

    >>> one, other = {"logits": [[1.0, -4.0]], "losses": [2.0, 1.0]}, {"logits": [[1.0, -3.0]], "losses": [2.0, 1.0]}
    >>> agreed({"ours": one, "torch": other})[1]
    {'torch': 'torch computes another network: logits differ by 0.25, allowed are 0.0001'}
    """
    seconds = {peer: answer["losses"][1] for peer, answer in answers.items()}
    middle = statistics.median_low(
        [loss for loss in seconds.values() if math.isfinite(loss)] or [math.nan]
    )
    from_ours = {peer: _differences(answer, answers["ours"]) for peer, answer in answers.items()}
    judged = {
        peer: found | {"second_loss": _relative(seconds[peer], middle)}
        for peer, found in from_ours.items()
    }
    far = {
        peer: f"{peer} computes another network: {name.replace('_', ' ')} {'differ' if name == 'logits' else 'differs'} by {difference:.2g}, allowed are {TOLERANCES[name]:g}"
        for peer, differences in judged.items()
        for name, difference in reversed(differences.items())  # the first of them stays
        if not difference <= TOLERANCES[name]  # a NaN is no agreement
    }
    del from_ours["ours"]
    return from_ours, far


def _relative(value: float, reference: float) -> float:
    return abs(value - reference) / abs(reference)


def _differences(answer: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    pairs = [
        (a, b)
        for row, own in zip(answer["logits"], ours["logits"], strict=True)
        for a, b in zip(row, own, strict=True)
    ]
    losses = [_relative(a, b) for a, b in zip(answer["losses"], ours["losses"], strict=True)]
    largest = max(abs(b) for _, b in pairs)
    return {
        "logits": max(abs(a - b) for a, b in pairs) / largest,
        "first_loss": losses[0],
        "second_loss": losses[1],
    }


def figures(
    samples: Mapping[str, Sequence[float]], memory: Mapping[str, int | None]
) -> tuple[dict[str, float], dict[str, str | None]]:
    """Metrics by the names of `METRICS`, and which peers were best.

    Args:
      samples: seconds, one a round, by ``PEER: train``, ``PEER: infer`` and ``ours: once``.
      memory: peak resident bytes of a train step, by peer.
    """
    step, call = samples["ours: train"], samples["ours: infer"]
    low, high = median_interval(step)
    metrics = {"step_time": statistics.median(step), "step_time_low": low, "step_time_high": high}
    metrics |= {
        "call_time": statistics.median(call),
        "once_step_time": statistics.median(samples["ours: once"]),
    }
    best = {what: _best(samples, what) for what in ("train", "infer")}
    for name, what, against in (
        ("train_over_best_peer", "train", best["train"]), ("inference_over_best_peer", "infer", best["infer"]),
        ("train_over_flax", "train", "flax"), ("inference_over_flax", "infer", "flax"),
    ):  # fmt: skip
        metrics |= _ratio(name, samples[f"ours: {what}"], samples.get(f"{against}: {what}"))
    for name, what in (("best_peer_step_time", "train"), ("best_peer_call_time", "infer")):
        metrics |= {name: statistics.median(samples[f"{best[what]}: {what}"])} if best[what] else {}
    if (held := memory.get("ours")) is not None:
        metrics["memory_peak"] = held
        metrics |= {"memory_over_pytorch": held / theirs} if (theirs := memory.get("torch")) else {}
    return metrics, {"best_peer_train": best["train"], "best_peer_inference": best["infer"]}


def _best(samples: Mapping[str, Sequence[float]], what: str) -> str | None:
    rivals = {name.partition(":")[0] for name in samples if name.startswith(RIVALS)}
    return min(
        sorted(rivals), key=lambda peer: statistics.median(samples[f"{peer}: {what}"]), default=None
    )


def _ratio(name: str, ours: Sequence[float], theirs: Sequence[float] | None) -> dict[str, float]:
    """Median over rounds and its 98 % interval."""
    if theirs is None:
        return {}
    found = compare(ours, theirs, paired=True)
    return {name: found.ratio, f"{name}_low": found.low, f"{name}_high": found.high}
