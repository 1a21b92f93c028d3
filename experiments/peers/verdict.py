"""Whether all peers compute the same."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

# The largest differences allowed: of logits, relative to the largest logit, and of the loss of the
# first step, relative to the loss, from ours; and of the loss of the second step, which shows a
# wrong gradient, from the median of all peers, as none of them is the reference. Adam takes full
# steps in the direction of the rounding errors of gradients near zero, and batch norm over four
# rows magnifies them: there the libraries' second losses differ by up to 0.13, elsewhere by less
# than 1e-4. In bfloat16 every layer rounds to 8 bits, each library at other places.
TOLERANCES = {
    "float32": {"logits": 1e-4, "first_loss": 1e-3, "second_loss": 0.1},
    "bfloat16": {"logits": 0.1, "first_loss": 0.05, "second_loss": 0.2},
}


def check_agreement(
    outputs: Mapping[str, Mapping[str, Any]], precision: str = "float32"
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Checks that all peers compute the same.

    Args:
      outputs: by peer, including ``ours``: the ``logits``, and the ``losses`` of two steps if it
        can be trained, of `worker.PeerMethods`.
      precision: a key of `TOLERANCES`.

    Returns:
      The differences of each other peer from ours; and a sentence for each peer, ours included,
      whose difference is larger than allowed.

    >>> ours = {"logits": [[1.0, -4.0]], "losses": [2.0, 1.0]}
    >>> torch = {"logits": [[1.0, -3.0]], "losses": [2.0, 1.0]}
    >>> check_agreement({"ours": ours, "torch": torch})[1]
    {'torch': 'torch computes another network: logits differ by 0.25, allowed are 0.0001'}
    """
    second_losses = {
        peer: result["losses"][1] for peer, result in outputs.items() if "losses" in result
    }
    finite = [loss for loss in second_losses.values() if math.isfinite(loss)]
    median = statistics.median_low(finite or [math.nan])
    from_ours = {peer: _differences(result, outputs["ours"]) for peer, result in outputs.items()}
    disagreements = {}
    for peer, differences in from_ours.items():
        judged = dict(differences)
        if peer in second_losses:
            judged["second_loss"] = _relative(second_losses[peer], median)
        if sentence := _first_disagreement(peer, judged, TOLERANCES[precision]):
            disagreements[peer] = sentence
    del from_ours["ours"]
    return from_ours, disagreements


def _first_disagreement(
    peer: str, differences: Mapping[str, float], allowed: Mapping[str, float]
) -> str | None:
    for name, difference in differences.items():
        if not difference <= allowed[name]:  # NaN is a disagreement
            verb = "differ" if name == "logits" else "differs"
            return (
                f"{peer} computes another network: {name.replace('_', ' ')} {verb} by "
                f"{difference:.2g}, allowed are {allowed[name]:g}"
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
    largest = max(abs(b) for _, b in pairs)
    differences = {"logits": max(abs(a - b) for a, b in pairs) / largest}
    if "losses" in result:
        losses = zip(result["losses"], ours["losses"], strict=True)
        names = ("first_loss", "second_loss")
        differences |= {n: _relative(a, b) for n, (a, b) in zip(names, losses, strict=True)}
    return differences
