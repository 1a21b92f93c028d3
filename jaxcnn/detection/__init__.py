"""Object detection as YOLOv2 does it: raw predictions to boxes, the loss, made-up pictures, drawing."""

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
from jaxcnn.detection.pictures import SHAPES, synthetic_pictures

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
    "synthetic_pictures",
]
