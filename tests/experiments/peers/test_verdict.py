"""Agreement of the peers, and ratios of their times."""

import math

import numpy as np
import pytest

from experiments.peers import verdict
from experiments.records.metrics import METRICS


def test_a_difference_is_reported_by_name_and_nan_is_a_disagreement():
    ours = {"logits": [[2.0, -4.0]], "losses": [2.0, 1.0]}
    torch = {"logits": [[2.0, -4.0001]], "losses": [2.1, math.nan]}
    outputs = {"ours": ours, "torch": torch, "flax": ours}
    differences, disagreements = verdict.check_agreement(outputs)
    assert differences["flax"] == {"logits": 0.0, "first_loss": 0.0, "second_loss": 0.0}
    assert differences["torch"]["logits"] == pytest.approx(2.5e-5)
    assert differences["torch"]["first_loss"] == pytest.approx(0.05)
    assert disagreements == {
        "torch": "torch computes another network: first loss differs by 0.05, allowed are 0.001"
    }


@pytest.mark.parametrize(
    ("losses", "disagreeing"),
    [
        # ours and Keras differ from each other, neither from the median
        ({"ours": 0.92, "flax": 0.96, "torch": 1.0, "keras": 1.05}, set()),
        ({"ours": 0.8, "flax": 1.0, "torch": 1.0, "keras": 1.05}, {"ours"}),
        ({"ours": 1.0, "flax": 1.0, "torch": 2.0, "keras": 1.05}, {"torch"}),
        ({"ours": math.nan, "flax": 1.0, "torch": 1.0}, {"ours"}),
        ({"ours": 1.2, "torch": 1.0}, {"ours"}),
        ({"ours": math.nan, "torch": math.nan}, {"ours", "torch"}),
    ],
)
def test_second_losses_including_ours_are_compared_with_the_median(losses, disagreeing):
    outputs = {peer: {"logits": [[1.0]], "losses": [2.0, loss]} for peer, loss in losses.items()}
    assert set(verdict.check_agreement(outputs)[1]) == disagreeing


@pytest.fixture
def samples():
    """Seconds in seven rounds, in which the machine slows down to half its speed."""
    drift = np.linspace(1, 2, 7)
    seconds = {
        "ours: train": 2,
        "ours: once": 3,
        "ours: infer": 6,
        "flax: train": 8,
        "flax: infer": 6,
        "torch: train": 5,
        "torch: infer": 3,
        "keras: train": 4,
        "keras: infer": 9,
    }
    return {name: (value * drift).tolist() for name, value in seconds.items()}


def test_ratios_are_to_the_best_peer_of_each_kind_of_work_by_rounds(samples):
    metrics, best = verdict.compute_metrics(samples, {"ours": 30, "torch": 20, "keras": None})
    assert best == {"best_peer_train": "keras", "best_peer_inference": "torch"}
    assert metrics["train_over_best_peer"] == pytest.approx(0.5)
    assert metrics["train_over_best_peer_high"] == metrics["train_over_best_peer"]
    assert metrics["inference_over_best_peer"] == pytest.approx(2)
    assert metrics["train_over_flax"] == pytest.approx(0.25)
    assert metrics["best_peer_step_time"] == pytest.approx(6)
    assert metrics["once_step_time"] == pytest.approx(4.5)
    assert metrics["memory_over_pytorch"] == 1.5 and metrics.keys() <= METRICS.keys()


def test_without_rivals_there_are_ratios_to_flax_only(samples):
    without = {name: samples[name] for name in samples if not name.startswith(verdict.RIVALS)}
    metrics, best = verdict.compute_metrics(without, {"ours": None})
    assert best == {"best_peer_train": None, "best_peer_inference": None}
    assert "train_over_flax" in metrics
    assert not [name for name in metrics if "peer" in name or "memory" in name]
