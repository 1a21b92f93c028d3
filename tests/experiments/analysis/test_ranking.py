"""The ranking of classifiers by accuracy and time, and its standard errors by hand."""

import pytest

from experiments.analysis.ranking import conclusion, ranking
from experiments.records import Record


def make_record(
    name: str,
    accuracy: float | None,
    seconds: float,
    test_images: int | None = None,
    status: str = "ok",
) -> Record:
    metrics = {"training_time": seconds}
    if accuracy is not None:
        metrics["test_accuracy"] = accuracy
    provenance = {"examples": {"test": test_images}} if test_images else {}
    settings = {"model": name}
    return Record("search", name, status, settings=settings, metrics=metrics, provenance=provenance)


def test_the_ranking_is_by_accuracy_and_then_by_time():
    ranks = ranking(
        [
            make_record("a", 0.9, 5),
            make_record("b", 0.95, 9),
            make_record("c", 0.9, 1),
            make_record("d", 0.99, 1, status="failed"),
            make_record("e", None, 0),
        ]
    )
    places = [(rank.record.case, rank.by_accuracy, rank.by_time) for rank in ranks]
    assert places == [("b", 1, 3), ("c", 2, 1), ("a", 2, 2)]
    assert [rank.standard_error for rank in ranks] == [None] * 3
    assert [rank.as_good for rank in ranks] == [True, False, False]


def test_without_records_there_is_no_ranking():
    assert ranking([]) == []
    assert conclusion([]) == []


def test_with_few_test_images_the_best_is_uncertain():
    # Standard errors are √(0.9 · 0.1 / 100) = 0.03 and √(0.8 · 0.2 / 100) = 0.04, and that of the
    # difference is 0.05. Twice that is 0.1.
    best, near, far = ranking(
        [
            make_record("a", 0.9, 1, 100),
            make_record("b", 0.8, 1, 100),
            make_record("c", 0.75, 1, 100),
        ]
    )
    assert (best.standard_error, near.standard_error) == (pytest.approx(0.03), pytest.approx(0.04))
    assert near.as_good and not far.as_good
    lines = conclusion([best.record, near.record, far.record])
    assert lines[0].startswith("1. a: 0.9000 ± 0.0300, trains in 1 s (rank 1 by time)")
    assert lines[-1] == "a is not better than b by more than twice the standard error"


def test_times_of_compiling_and_predicting_count():
    """Nearest neighbors train in no time and predict for as long as others train."""
    lazy, eager = make_record("knn", 0.9, 0.0, 100), make_record("mlp", 0.9, 3.0, 100)
    lazy.metrics.update(compile_time=1.0, prediction_time=0.03)  # 1 s, and 3 s for 100 images
    eager.metrics.update(cache_load_time=0.5, prediction_time=0.001)
    ranks = ranking([lazy, eager])
    assert [(rank.record.case, rank.by_time) for rank in ranks] == [("mlp", 1), ("knn", 2)]
    lines = conclusion([lazy, eager])
    assert "trains in 3 s, compiles in 0.5 s, predicts 100 images in 0.1 s (rank 1" in lines[0]
    assert "trains in 0 s, compiles in 1 s, predicts 100 images in 3 s (rank 2" in lines[1]


def test_predictions_of_different_numbers_of_images_are_compared_for_one_number():
    """A model that predicts 500 images in 50 s is slower than one of 60 s for 10,000."""
    few, all_images = make_record("a", 0.9, 0.0, 500), make_record("b", 0.8, 0.0, 10_000)
    few.metrics["prediction_time"], all_images.metrics["prediction_time"] = 0.1, 0.006
    ranks = ranking([few, all_images])
    assert [(rank.record.case, rank.by_time) for rank in ranks] == [("a", 2), ("b", 1)]
    assert "predicts 10,000 images in 1e+03 s" in conclusion([few, all_images])[0]
