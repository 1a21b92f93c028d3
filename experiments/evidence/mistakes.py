"""The mistakes of a network: confusion matrix, and the wrong predictions it was most sure of."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.evidence.dataset_summary import shorten, summarize
from experiments.evidence.thumbnails import thumbnails
from experiments.workloads.predictions import Predictions
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits
from experiments.workloads.trained_model import read_rows
from jaxcnn.data.source import Split

MAX_IMAGES = 12
MAX_MATRIX_CLASSES = 40  # the largest matrix that is readable; for more classes `MAX_PAIRS` pairs
MAX_PAIRS = 40


def collect_evidence(
    splits: Splits, preprocessing: Preprocessing, predictions: Predictions
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Summarizes the data set and the mistakes in the test images, for a record.

    If an image cannot be read any more, perhaps after hours of training, the record has no evidence
    but is not lost.

    Args:
      splits: the data; the predictions are for its test split.
      preprocessing: has the stored shape of the images and the names of the classes.
      predictions: for every test image, in order.

    Returns:
      The results of `dataset_summary.summarize` and `summarize_mistakes`, and a list of remarks. If
      they could not be computed, they are empty and a remark says why.
    """
    try:
        summary = summarize(splits, preprocessing)
        return summary, summarize_mistakes(predictions, splits.test, preprocessing), []
    except Exception as error:
        return {}, {}, [f"no data set summary: {type(error).__name__}: {error}"]


def summarize_mistakes(
    predictions: Predictions, split: Split, preprocessing: Preprocessing
) -> dict[str, Any]:
    """Summarizes the mistakes in a split for a record.

    Args:
      predictions: for every example of the split, in order.
      split: the images.
      preprocessing: has the stored shape of the images and the names of the classes.

    Returns:
      JSON: ``total`` and ``correct``, numbers of predictions; ``confusion``, counts by true (row)
      and predicted (column) class, and ``classes``, names; for more than 40 classes instead of both
      ``confused``, the pairs most often confused; ``pictures``, the mistakes with the highest
      probability, each with ``png`` (base64), the names ``true`` and ``predicted``,
      ``probability``, and its ``row`` in the split.
    """
    counts = {
        "total": len(predictions.label),
        "correct": int(np.sum(predictions.predicted == predictions.label)),
    }
    confusion = _confusion(predictions, preprocessing.classes)
    return counts | confusion | {"pictures": _images(predictions, split, preprocessing)}


def most_confident_mistakes(predictions: Predictions) -> np.ndarray:
    """The rows ``i[N]`` of the wrong predictions with the highest probability, highest first."""
    wrong = np.flatnonzero(predictions.predicted != predictions.label)
    return wrong[np.argsort(-predictions.probability[wrong], kind="stable")][:MAX_IMAGES]


def _confusion(predictions: Predictions, classes: Sequence[str]) -> dict[str, Any]:
    size = len(classes)
    codes = predictions.label.astype(np.int64) * size + predictions.predicted
    pairs, counts = np.unique(codes, return_counts=True)
    if size > MAX_MATRIX_CLASSES:
        return {"confused": _most_confused(pairs, counts, classes)}
    matrix = np.zeros(size * size, int)
    matrix[pairs] = counts
    return {
        "classes": [shorten(name) for name in classes],
        "confusion": matrix.reshape(size, size).tolist(),
    }


def _most_confused(
    pairs: np.ndarray, counts: np.ndarray, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The pairs of different classes with the highest counts.

    A pair is encoded as ``true * len(classes) + predicted``.
    """
    true, predicted = np.divmod(pairs, len(classes))
    order = np.argsort(-counts, kind="stable")
    order = order[true[order] != predicted[order]][:MAX_PAIRS]
    return [
        {
            "true": shorten(classes[true[index]]),
            "predicted": shorten(classes[predicted[index]]),
            "count": int(counts[index]),
        }
        for index in order
    ]


def _images(
    predictions: Predictions, split: Split, preprocessing: Preprocessing
) -> list[dict[str, Any]]:
    rows = most_confident_mistakes(predictions)
    if not len(rows):
        return []
    images, _ = read_rows(split, rows, preprocessing)
    return [
        {
            "png": png,
            "true": shorten(preprocessing.classes[predictions.label[row]]),
            "predicted": shorten(preprocessing.classes[predictions.predicted[row]]),
            "probability": float(predictions.probability[row]),
            "row": int(row),
        }
        for row, png in zip(rows, thumbnails(images), strict=True)
    ]
