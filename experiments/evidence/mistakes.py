"""What a network got wrong: which class it took for which, and the pictures it was surest of and wrong about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.evidence.answers import Answers
from experiments.evidence.looks import look, short
from experiments.evidence.thumbnails import thumbnails
from experiments.inputs import Inputs
from experiments.pipelines import Splits
from experiments.trained import as_stored
from jaxcnn.data.source import Split

PICTURES = 12
LARGEST = 40  # classes of a matrix that can still be read; of more, the pairs most often confused
PAIRS = 40


def seen(splits: Splits, inputs: Inputs, answers: Answers) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The look at the data and the mistakes in the test images, for a record, and a remark where they could not be had.

    A picture that cannot be read any more, after hours perhaps, costs the pictures and not the record.
    """
    try:
        return look(splits, inputs), mistakes(answers, splits.test, inputs), []
    except Exception as error:
        return {}, {}, [f"no look at the data: {type(error).__name__}: {error}"]


def mistakes(answers: Answers, split: Split, inputs: Inputs) -> dict[str, Any]:
    """What goes into a record of the answers to a split.

    Args:
      answers: to every example of the split, in order.
      split: where the pictures are.
      inputs: how the network sees them, and the names of the classes.

    Returns:
      ``total`` and ``correct`` answers; ``confusion``, counts by true (row) and predicted (column) class, and the names
      ``classes``, or of more than 40 classes ``confused``, the pairs most often confused; ``pictures``, those most surely
      wrong, each with ``png`` in base64, names ``true`` and ``predicted``, ``probability`` and its ``row`` in the split.
    """
    found = {"total": len(answers.label), "correct": int(np.sum(answers.predicted == answers.label))}
    return found | _confusion(answers, inputs.classes) | {"pictures": _pictures(answers, split, inputs)}


def surest(answers: Answers) -> np.ndarray:
    """The rows of the pictures most surely wrong, the surest first."""
    wrong = np.flatnonzero(answers.predicted != answers.label)
    return wrong[np.argsort(-answers.probability[wrong], kind="stable")][:PICTURES]


def _confusion(answers: Answers, classes: Sequence[str]) -> dict[str, Any]:
    size = len(classes)
    pairs, counts = np.unique(answers.label.astype(np.int64) * size + answers.predicted, return_counts=True)
    if size <= LARGEST:
        matrix = np.zeros(size * size, int)
        matrix[pairs] = counts
        return {"classes": [short(name) for name in classes], "confusion": matrix.reshape(size, size).tolist()}
    often = [place for place in np.argsort(-counts, kind="stable") if pairs[place] // size != pairs[place] % size][:PAIRS]
    named = ((short(classes[pairs[place] // size]), short(classes[pairs[place] % size]), int(counts[place])) for place in often)
    return {"confused": [{"true": true, "predicted": predicted, "count": count} for true, predicted, count in named]}


def _pictures(answers: Answers, split: Split, inputs: Inputs) -> list[dict[str, Any]]:
    rows = surest(answers)
    if not len(rows):
        return []
    images, _ = as_stored(split, rows, inputs)
    return [
        {
            "png": png,
            "true": short(inputs.classes[answers.label[row]]),
            "predicted": short(inputs.classes[answers.predicted[row]]),
            "probability": float(answers.probability[row]),
            "row": int(row),
        }
        for row, png in zip(rows, thumbnails(images), strict=True)
    ]
