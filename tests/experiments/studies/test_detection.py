"""The detector's study from end to end, on few images and few steps; its scores by hand."""

import numpy as np
import pytest
from PIL import Image

from experiments import run
from experiments.studies import detection as study
from jaxcnn import detection
from tests.support.records import read_records


@pytest.mark.slow
def test_it_leaves_a_record_weights_and_an_image(tmp_path):
    model = ["--model=yolov2", "--image-size=64", "--batch-size=2", "--epochs=6"]
    arguments = ["--study=detection", "--device=cpu:1", *model, f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    (record,) = read_records(tmp_path, "detection")
    losses = record["samples"]["training_loss"]
    assert len(losses) == 6 and losses[-1] < losses[0]
    metrics = record["metrics"]
    assert 0 <= metrics["boxes_found"] <= 1 and metrics["flops_per_step"] > 1e9
    assert metrics["training_time"] == pytest.approx(sum(record["samples"]["step_time"]))
    compiling = metrics.get("compile_time", metrics.get("cache_load_time"))
    assert metrics["total_time"] > metrics["training_time"] + compiling
    (folder,) = (tmp_path / "detection").glob("*.checkpoints")
    with Image.open(folder / "boxes.png") as image:
        assert image.size == (2 * 4 * 64, 4 * 64)


NO_BOX = [0.0, 0.0, 0.0, 0.0]
BATCH = {  # boxes of class 0 and 1 in the first image, one of class 2 in the second
    "boxes": np.array(
        [
            [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], NO_BOX],
            [[0.5, 0.5, 0.2, 0.2], NO_BOX, NO_BOX],
        ],
        np.float32,
    ),
    "label": np.array([[0, 1, -1], [2, -1, -1]]),
}


def detections_of(*rows: tuple[list[float], int]) -> detection.Detections:
    """Detections with the given boxes and classes."""
    boxes = np.array([box for box, _ in rows], np.float32)
    classes = np.array([label for _, label in rows])
    return detection.Detections(boxes, np.ones(len(rows), np.float32), classes)


@pytest.mark.parametrize(
    ("height", "overlap", "correct"),
    [(0.25, 0.5, 0), (0.4, 0.8, 1)],
    ids=["an overlap of a half is not enough", "an overlap of 0.8 is"],
)
def test_scores_by_hand(height, overlap, correct):
    """Besides a box in the first image, one of the wrong class and one elsewhere are detected."""
    first = detections_of(([0.25, 0.25, 0.5, height], 0), ([0.75, 0.75, 0.5, 0.5], 0))
    second = detections_of(([0.9, 0.9, 0.2, 0.2], 2))
    assert study._scores([first, second], BATCH) == {
        "boxes_found": pytest.approx(correct / 3),
        "boxes_right": pytest.approx(correct / 3),
        "mean_overlap": pytest.approx(overlap / 3),
    }
