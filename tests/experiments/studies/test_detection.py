"""The detector's study from end to end, on few pictures and few steps; that it learns is its own business (README)."""

import json

import numpy as np
import pytest
from PIL import Image

from experiments import run
from experiments.studies import detection as study
from jaxcnn import detection


@pytest.mark.slow
def test_it_leaves_a_record_weights_and_a_picture(tmp_path):
    arguments = [
        "--study=detection",
        "--model=yolov2",
        "--device=cpu:1",
        "--image-size=64",
        "--batch-size=2",
        "--epochs=6",
    ]
    assert run.main([*arguments, f"--results={tmp_path}"]) == 0
    (path,) = (tmp_path / "detection").glob("*.json")
    record = json.loads(path.read_text())
    losses = record["samples"]["training_loss"]
    assert len(losses) == 6 and losses[-1] < losses[0]
    assert 0 <= record["metrics"]["boxes_found"] <= 1 and record["metrics"]["flops_per_step"] > 1e9
    (folder,) = (tmp_path / "detection").glob("*.checkpoints")
    assert Image.open(folder / "boxes.png").size == (2 * 4 * 64, 4 * 64)


def test_scores_by_hand():
    """An overlap of a half is not enough, one of 0.8 is; a box of the wrong class and one elsewhere are wrong."""
    boxes = np.array(
        [
            [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]],
            [[0.5, 0.5, 0.2, 0.2]] * 3,
        ],
        np.float32,
    )
    batch = {"boxes": boxes, "label": np.array([[0, 1, -1], [2, -1, -1]])}

    def found(rows: list[tuple[list[float], int]]) -> detection.Detections:
        there, classes = [np.asarray(column) for column in zip(*rows, strict=True)] or [
            np.zeros((0, 4)),
            np.zeros(0),
        ]
        return detection.Detections(
            there.astype(np.float32), np.ones(len(rows), np.float32), classes
        )

    first = found(
        [([0.25, 0.25, 0.5, 0.25], 0), ([0.75, 0.75, 0.5, 0.5], 0)]
    )  # half of the first box; the second as the first's class
    second = found([([0.9, 0.9, 0.2, 0.2], 2)])
    scores = study._scores([first, second], batch)
    assert scores == {
        "boxes_found": 0.0,
        "boxes_right": 0.0,
        "mean_overlap": pytest.approx(0.5 / 3),
    }
    better = found([([0.25, 0.25, 0.5, 0.4], 0), ([0.75, 0.75, 0.5, 0.5], 0)])
    scores = study._scores([better, second], batch)
    assert scores == {
        "boxes_found": pytest.approx(1 / 3),
        "boxes_right": pytest.approx(1 / 3),
        "mean_overlap": pytest.approx(0.8 / 3),
    }
