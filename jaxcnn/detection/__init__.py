"""YOLOv2 object detection: decoding predictions, the loss, synthetic images, drawing."""

from jaxcnn.detection.boxes import (
    VOC_ANCHORS,
    Detections,
    decode,
    detect,
    iou,
    non_maximum_suppression,
)
from jaxcnn.detection.drawing import draw
from jaxcnn.detection.loss import region_objective
from jaxcnn.detection.synthetic import SHAPES, synthetic_scenes

__all__ = [
    "SHAPES",
    "VOC_ANCHORS",
    "Detections",
    "decode",
    "detect",
    "draw",
    "iou",
    "non_maximum_suppression",
    "region_objective",
    "synthetic_scenes",
]
