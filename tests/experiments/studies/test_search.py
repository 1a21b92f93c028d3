"""The MNIST quest: nearest neighbours as products, and the ranking."""

import jax
import numpy as np
import pytest
from rich.console import Console

from experiments.analysis import ranking
from experiments.config import RunConfig
from experiments.harness.study import Context
from experiments.records import Record
from experiments.studies import search
from experiments.workloads import nearest_neighbours
from jaxcnn import data
from jaxcnn.backend import Backend

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def of(
    name: str, accuracy: float | None, seconds: float, test: int | None = None, status: str = "ok"
) -> Record:
    metrics = {"training_time": seconds} | ({} if accuracy is None else {"test_accuracy": accuracy})
    provenance = {"examples": {"test": test}} if test else {}
    return Record(
        "search", name, status, settings={"model": name}, metrics=metrics, provenance=provenance
    )


def test_the_ranking_goes_by_accuracy_and_then_by_time():
    rows = [
        of("a", 0.9, 5),
        of("b", 0.95, 9),
        of("c", 0.9, 1),
        of("d", 0.99, 1, status="failed"),
        of("e", None, 0),
    ]
    found = ranking.ranking(rows)
    assert [(rank.record.case, rank.by_accuracy, rank.by_time) for rank in found] == [
        ("b", 1, 3),
        ("c", 2, 1),
        ("a", 2, 2),
    ]
    assert [rank.error for rank in found] == [None] * 3 and [rank.as_good for rank in found] == [
        True,
        False,
        False,
    ]
    assert ranking.ranking([]) == [] == ranking.conclusion([])


def test_few_test_images_tell_little():
    # standard errors √(0.9 · 0.1 / 100) = 0.03 and √(0.8 · 0.2 / 100) = 0.04, of the difference 0.05: twice that is 0.1
    best, near, far = ranking.ranking(
        [of("a", 0.9, 1, 100), of("b", 0.8, 1, 100), of("c", 0.75, 1, 100)]
    )
    assert (best.error, near.error) == (pytest.approx(0.03), pytest.approx(0.04))
    assert near.as_good and not far.as_good
    lines = ranking.conclusion([best.record, near.record, far.record])
    assert lines[0].startswith("1. a: 0.9000 ± 0.0300, trained in 1 s (place 1 by time)")
    assert lines[-1] == "a is no better than b by more than twice the standard error"


def digits():
    dataset = data.open_dataset("digits", shape=(8, 8, 1))
    return *search._flat(data.as_arrays(dataset.train, (8, 8, 1))), *search._flat(
        data.as_arrays(dataset.test, (8, 8, 1))
    )


@pytest.mark.parametrize(("k", "p"), [(3, 4), (4, 4), (1, 2)])
def test_neighbours_vote_as_scikit_learns_do(k, p):
    from sklearn.neighbors import KNeighborsClassifier

    x, y, test, _ = digits()
    peer = KNeighborsClassifier(k, weights="distance", algorithm="ball_tree", p=p).fit(x, y)
    found = nearest_neighbours.classify(x, y, test, k=k, p=p, device=CPU.devices[0])
    np.testing.assert_array_equal(found, peer.predict(test))


def test_powered_distances_are_the_sums():
    a, b = np.float32([[0, 1], [2, 3]]), np.float32([[1, 1], [0, 5], [2, 3]])
    expected = [[1, 256, 2**4 + 2**4], [1 + 2**4, 2**4 + 2**4, 0]]
    np.testing.assert_allclose(nearest_neighbours.powered_distances(a, b, 4), expected, atol=1e-4)


def test_the_same_picture_decides_alone():
    rows = np.float32([[0, 0], [0, 0.1], [0, -0.1]])
    assert nearest_neighbours.classify(
        rows, np.int32([1, 0, 0]), rows[:1], k=3, p=2, device=CPU.devices[0]
    ).tolist() == [1]


@pytest.mark.parametrize(("k", "p"), [(1, 3), (0, 4), (5, 4)])
def test_odd_orders_and_too_many_neighbours_are_refused(k, p):
    with pytest.raises(ValueError, match="needs an even order"):
        nearest_neighbours.classify(
            np.zeros((4, 2), np.float32),
            np.zeros(4, np.int32),
            np.zeros((1, 2), np.float32),
            k=k,
            p=p,
            device=CPU.devices[0],
        )


def test_cases_are_the_published_settings_and_the_networks():
    cases = search.cases(RunConfig(preset="full", dataset="synthetic"), CPU)
    names = [(case.settings["model"], case.settings.get("library", "")) for case in cases]
    assert len(set(names)) == len(names) == len({case.parts for case in cases})
    assert {
        ("logistic", ""),
        ("lenet5", ""),
        ("lenet_like", ""),
        ("mnist_cnn", ""),
        ("mlp:512", ""),
    } <= set(names)
    knn = cases[names.index(("knn_3", "scikit-learn"))].settings["parameters"]
    assert {name: knn[name] for name in ("algorithm", "p", "weights", "n_neighbors")} == {
        "algorithm": "ball_tree", "p": 4, "weights": "distance", "n_neighbors": 3,
    }  # fmt: skip
    assert cases[names.index(("random_forest", "scikit-learn"))].settings["parameters"] == {
        "n_estimators": 1000
    }


def measured(name: str, library: str, config: RunConfig):
    case = next(
        c
        for c in search.cases(config, CPU)
        if (c.settings["model"], c.settings.get("library")) == (name, library)
    )
    return search.measure(case, Context(CPU, None, Console(quiet=True)))


@pytest.mark.parametrize(
    ("name", "library"),
    [("knn_3", "scikit-learn"), ("knn_3", "jax"), ("random_forest", "scikit-learn")],
)
def test_classic_models_read_digits(name, library):
    found = measured(name, library, RunConfig())
    assert found.metrics["test_accuracy"] > 0.97 and found.metrics["prediction_time"] > 0
    assert (
        found.provenance["examples"] == {"train": 1437, "test": 360}
        and found.provenance["remarks"] == []
    )


def test_a_ball_tree_may_be_judged_by_some_of_the_images(monkeypatch):
    monkeypatch.setattr(search, "AT_MOST", 36)
    found = measured("knn_4", "scikit-learn", RunConfig())
    assert found.provenance["examples"]["test"] == 36
    assert found.provenance["remarks"] == [
        "knn_4: judged by 36 of the 360 test images, evenly spread: each takes long"
    ]
    assert found.provenance["platform"] == "cpu"


@pytest.mark.slow
def test_neighbours_read_mnist(tfds_dir):
    dataset = data.open_dataset("mnist", shape=(28, 28, 1), data_dir=tfds_dir)
    x, y = search._flat(
        data.as_arrays(data.Subset(dataset.train, np.arange(0, 60_000, 6)), (28, 28, 1))
    )
    test, labels = search._flat(
        data.as_arrays(data.Subset(dataset.test, np.arange(0, 10_000, 10)), (28, 28, 1))
    )
    found = nearest_neighbours.classify(x, y, test, k=3, p=4, device=CPU.devices[0])
    assert np.mean(found == labels) > 0.94  # of a sixth of the training set; with all of it 0.9748
