"""Ratios of our times to those of other libraries, over launches."""

import numpy as np
import pytest

from experiments.peers import ratios
from experiments.records.metrics import METRICS


@pytest.fixture
def samples():
    """Seconds in three launches of seven rounds, in which the machine slows to half its speed.

    The second launch takes twice as long in all libraries.
    """
    drift = np.outer([1, 2, 1], np.linspace(1, 2, 7))
    seconds = {
        "ours: train": 3,
        "ours: many_steps": 2,
        "ours: infer": 6,
        "ours frozen: infer": 4.5,
        "flax: train": 12,
        "flax: infer": 6,
        "torch: train": 5,
        "torch: infer": 3.5,
        "torch compiled frozen: infer": 3,
        "keras: train": 4,
        "keras: infer": 9,
    }
    return {name: (value * drift).tolist() for name, value in seconds.items()}


def test_ratios_are_to_the_best_peer_of_each_kind_of_work(samples):
    memory = {"ours": [30, 90, 40], "torch": [20, 10, 90]}
    metrics, best = ratios.compute_metrics(samples, memory)
    assert best == {
        "best_peer_train": "keras",
        "best_peer_inference": "torch compiled frozen",
    }
    assert metrics["train_over_best_peer"] == pytest.approx(0.75)
    assert metrics["train_over_best_peer_high"] == pytest.approx(0.75)
    assert metrics["many_steps_over_best_peer"] == pytest.approx(0.5)
    assert metrics["inference_over_best_peer"] == pytest.approx(2)
    assert metrics["frozen_inference_over_best_peer"] == pytest.approx(1.5)
    assert metrics["frozen_call_time"] == pytest.approx(6.75)
    assert metrics["train_over_flax"] == pytest.approx(0.25)
    assert metrics["step_time"] == pytest.approx(4.5)
    assert metrics["many_steps_time"] == pytest.approx(3)
    assert metrics["best_peer_step_time"] == pytest.approx(6)
    assert metrics["best_peer_call_time"] == pytest.approx(4.5)
    assert metrics["memory_peak"] == 40 and metrics["memory_over_pytorch"] == 2
    assert metrics.keys() <= METRICS.keys()


def test_a_launch_that_differs_widens_the_interval(samples):
    samples["ours: train"][1] = [2 * seconds for seconds in samples["ours: train"][1]]
    metrics, _ = ratios.compute_metrics(samples, {})
    assert metrics["train_over_best_peer"] == pytest.approx(0.75)
    assert metrics["train_over_best_peer_low"] < 0.5 and metrics["train_over_best_peer_high"] > 1.5


def test_without_rivals_there_are_ratios_to_flax_only(samples):
    without = {name: samples[name] for name in samples if not name.startswith(ratios.RIVALS)}
    metrics, best = ratios.compute_metrics(without, {})
    assert best == {"best_peer_train": None, "best_peer_inference": None}
    assert "train_over_flax" in metrics
    assert not [name for name in metrics if "peer" in name or "memory" in name]


def test_contenders_go_on_in_the_works_in_which_they_are_nearly_the_fastest(samples):
    first_launch = {name: launches[0] for name, launches in samples.items()}
    assert ratios.contenders(first_launch) == {
        "ours": ("train", "many_steps", "infer"),
        "ours frozen": ("infer",),
        "torch": ("train", "infer"),  # 1.25 and 1.17 times the fastest
        "torch compiled frozen": ("infer",),
        "keras": ("train",),
    }
    first_launch["torch: train"] = [1.01 * seconds for seconds in first_launch["torch: train"]]
    assert ratios.contenders(first_launch)["torch"] == ("infer",)
