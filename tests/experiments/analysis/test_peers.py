"""Ratios of ours to other libraries over several networks."""

import dataclasses

import pytest

from experiments import analysis
from experiments.analysis import peers
from experiments.records import Record


def record(model: str, status: str = "ok", **metrics: float) -> Record:
    settings = {"model": model, "image_size": 28, "batch_size": 8}
    return Record("peers", model, status, settings=settings, metrics=metrics)


def test_the_conclusion_has_the_geometric_mean_and_the_worst_network():
    records = [
        record("a", train_over_best_peer=0.5),
        record("b", train_over_best_peer=2.0, memory_over_pytorch=1.1),
        record("c", "failed", train_over_best_peer=9.0),
    ]
    summary = peers.summarize(records, "train_over_best_peer")
    assert (summary.worst_ratio, summary.worst, summary.count) == (2.0, records[1], 2)
    assert summary.mean == pytest.approx(1.0)
    assert peers.conclusion(records) == [
        "train step: 1.00 times the best peer's time (geometric mean of 2 networks), "
        "at worst 2.00 (b at 28×28, batch 8)",
        "peak memory of a train step: 1.10 times that of PyTorch (one network), "
        "at worst 1.10 (b at 28×28, batch 8)",
    ]
    assert peers.conclusion(records[2:]) == []


def test_a_network_at_two_batch_sizes_is_one_network():
    records = [record("a", train_over_best_peer=0.5), record("a", train_over_best_peer=2.0)]
    (line,) = peers.conclusion(records)
    assert "(geometric mean of 2 cases of one network)" in line
    (line,) = peers.conclusion([*records, record("b", train_over_best_peer=1.0)])
    assert "(geometric mean of 3 cases of 2 networks)" in line


def test_precisions_and_presets_are_not_pooled():
    def with_settings(case, ratio, **settings):
        one = record("a", train_over_best_peer=ratio)
        return dataclasses.replace(one, case=case, settings=one.settings | settings)

    records = [
        with_settings("1", 0.5, launches=5),
        with_settings("2", 0.8, launches=5, precision="bfloat16"),
        with_settings("3", 1.5, launches=1),
    ]
    lines = analysis.conclusion("peers", records)
    assert [line.partition(" times")[0] for line in lines] == [
        "precision default, launches 5: train step: 0.50",
        "precision bfloat16, launches 5: train step: 0.80",
        "precision default, launches 1: train step: 1.50",
    ]
