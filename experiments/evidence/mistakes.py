"""What a network got wrong: which class it took for which, and the pictures it was surest of and wrong about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.evidence.dataset_summary import short, summarize
from experiments.evidence.thumbnails import thumbnails
from experiments.workloads.predictions import Predictions
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.setup import Splits
from experiments.workloads.trained_model import as_stored
from jaxcnn.data.source import Split

PICTURES = 12
LARGEST = 40  # classes of a matrix that can still be read; of more, the pairs most often confused
PAIRS = 40


def collect_evidence(
    splits: Splits, preprocessing: Preprocessing, predictions: Predictions
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The look at the data and the mistakes in the test images, for a record, and a remark where they could not be had.

    A picture that cannot be read any more, after hours perhaps, costs the pictures and not the record.
    """
    try:
        return (
            summarize(splits, preprocessing),
            mistakes(predictions, splits.test, preprocessing),
            [],
        )
    except Exception as error:
        return {}, {}, [f"no look at the data: {type(error).__name__}: {error}"]


def mistakes(
    predictions: Predictions, split: Split, preprocessing: Preprocessing
) -> dict[str, Any]:
    """What goes into a record of the answers to a split.

    Args:
      answers: to every example of the split, in order.
      split: where the pictures are.
      preprocessing: how the network sees them, and the names of the classes.

    Returns:
      ``total`` and ``correct`` answers; ``confusion``, counts by true (row) and predicted (column) class, and the names
      ``classes``, or of more than 40 classes ``confused``, the pairs most often confused; ``pictures``, those most surely
      wrong, each with ``png`` in base64, names ``true`` and ``predicted``, ``probability`` and its ``row`` in the split.
    """
    found = {
        "total": len(predictions.label),
        "correct": int(np.sum(predictions.predicted == predictions.label)),
    }
    return (
        found
        | _confusion(predictions, preprocessing.classes)
        | {"pictures": _pictures(predictions, split, preprocessing)}
    )


def surest(predictions: Predictions) -> np.ndarray:
    """The rows of the pictures most surely wrong, the surest first."""
    wrong = np.flatnonzero(predictions.predicted != predictions.label)
    return wrong[np.argsort(-predictions.probability[wrong], kind="stable")][:PICTURES]


def _confusion(predictions: Predictions, classes: Sequence[str]) -> dict[str, Any]:
    size = len(classes)
    pairs, counts = np.unique(
        predictions.label.astype(np.int64) * size + predictions.predicted, return_counts=True
    )
    if size <= LARGEST:
        matrix = np.zeros(size * size, int)
        matrix[pairs] = counts
        return {
            "classes": [short(name) for name in classes],
            "confusion": matrix.reshape(size, size).tolist(),
        }
    often = [
        place
        for place in np.argsort(-counts, kind="stable")
        if pairs[place] // size != pairs[place] % size
    ][:PAIRS]
    named = (
        (
            short(classes[pairs[place] // size]),
            short(classes[pairs[place] % size]),
            int(counts[place]),
        )
        for place in often
    )
    return {
        "confused": [
            {"true": true, "predicted": predicted, "count": count}
            for true, predicted, count in named
        ]
    }


def _pictures(
    predictions: Predictions, split: Split, preprocessing: Preprocessing
) -> list[dict[str, Any]]:
    rows = surest(predictions)
    if not len(rows):
        return []
    images, _ = as_stored(split, rows, preprocessing)
    return [
        {
            "png": png,
            "true": short(preprocessing.classes[predictions.label[row]]),
            "predicted": short(preprocessing.classes[predictions.predicted[row]]),
            "probability": float(predictions.probability[row]),
            "row": int(row),
        }
        for row, png in zip(rows, thumbnails(images), strict=True)
    ]
