"""Records of the study `peers` whose step was one of many in one call."""

import json

from experiments import records
from experiments.analysis import peers

OLD = {
    "schema": 1,
    "study": "peers",
    "case": "lenet_like-32x32-b128",
    "status": "ok",
    "settings": {"model": "lenet_like", "image_size": 32, "batch_size": 128},
    "metrics": {
        "step_time": 0.003,
        "step_time_low": 0.002,
        "step_time_high": 0.004,
        "once_step_time": 0.005,
        "train_over_best_peer": 0.6,
        "train_over_best_peer_low": 0.5,
        "train_over_best_peer_high": 0.7,
        "inference_over_best_peer": 1.25,
        "train_over_flax": 0.3,
        "mfu_measured_peak": 0.17,
        "images_per_second": 42_667.0,
        "flops_per_step": 7e7,
    },
    "samples": {"ours: train": [0.003], "ours: once": [0.005], "torch: train": [0.005]},
    "provenance": {"time": "2026-10-01T00:00:00+00:00"},
}


def read(tmp_path, entry: dict) -> records.Record:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(entry))
    (record,), problems = records.load([path])
    assert problems == []
    return record


def test_an_old_ratio_is_that_of_many_steps_in_one_call(tmp_path):
    record = read(tmp_path, OLD)
    assert record.metrics == {
        "step_time": 0.005,
        "many_steps_time": 0.003,
        "many_steps_over_best_peer": 0.6,
        "many_steps_over_best_peer_low": 0.5,
        "many_steps_over_best_peer_high": 0.7,
        "inference_over_best_peer": 1.25,
        "flops_per_step": 7e7,
    }
    assert record.samples == {
        "ours: many_steps": [0.003],
        "ours: train": [0.005],
        "torch: train": [0.005],
    }
    assert [line.partition(":")[0] for line in peers.conclusion([record])] == [
        "train step, many in one call",
        "inference",
    ]


def test_a_present_record_and_those_of_other_studies_are_left_alone(tmp_path):
    present = {"step_time": 0.005, "many_steps_time": 0.003, "train_over_best_peer": 0.9}
    assert read(tmp_path, OLD | {"metrics": present}).metrics == present
    other = {"step_time": 0.003, "images_per_second": 10.0}
    assert read(tmp_path, OLD | {"study": "train", "metrics": other}).metrics == other


def test_a_failed_old_record_is_read(tmp_path):
    failed = OLD | {"status": "failed", "message": "torch: no compiler", "metrics": {}}
    assert read(tmp_path, failed).status == "failed"
