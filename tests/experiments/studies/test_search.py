"""The search for the best digit classifier: its cases, and the classic models."""

import jax
import numpy as np
import pytest
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness.study import CaseResult, Context
from experiments.studies import search
from experiments.workloads import nearest_neighbors
from jaxcnn import data
from jaxcnn.backend import Backend

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def test_cases_are_the_published_settings_and_the_networks():
    cases = search.cases(RunConfig(preset="full", dataset="synthetic"), CPU)
    names = [(case.settings["model"], case.settings.get("library", "")) for case in cases]
    assert len(set(names)) == len(names) == len({case.parts for case in cases})
    networks = {model for model, library in names if not library}
    assert {"logistic", "lenet5", "lenet_like", "mnist_cnn", "mlp:512"} <= networks
    parameters = {
        name: case.settings.get("parameters") for name, case in zip(names, cases, strict=True)
    }
    published = {"algorithm": "ball_tree", "p": 4, "weights": "distance", "n_neighbors": 3}
    assert published.items() <= parameters["knn_3", "scikit-learn"].items()
    assert parameters["random_forest", "scikit-learn"] == {"n_estimators": 1000}


def measure(name: str, library: str) -> CaseResult:
    """Measures the case of a classic model on scikit-learn's digits."""
    cases = search.cases(RunConfig(), CPU)
    (case,) = (
        case
        for case in cases
        if (case.settings["model"], case.settings.get("library")) == (name, library)
    )
    return search.measure(case, Context(CPU, None, Console(quiet=True)))


@pytest.mark.parametrize(
    ("name", "library"),
    [("knn_3", "scikit-learn"), ("knn_3", "jax"), ("random_forest", "scikit-learn")],
)
def test_classic_models_classify_digits(name, library):
    result = measure(name, library)
    assert result.metrics["test_accuracy"] > 0.97 and result.metrics["prediction_time"] > 0
    assert result.provenance["examples"] == {"train": 1437, "test": 360}
    assert result.provenance["remarks"] == []
    is_compiled = bool({"compile_time", "cache_load_time"} & result.metrics.keys())
    assert is_compiled == (library == "jax")


def test_a_ball_tree_may_be_evaluated_on_some_of_the_images(monkeypatch):
    monkeypatch.setattr(search, "MAX_TEST_IMAGES", 36)
    result = measure("knn_4", "scikit-learn")
    assert result.provenance["examples"]["test"] == 36
    assert result.provenance["remarks"] == [
        "knn_4: evaluated on 36 of the 360 test images, evenly spaced, as each takes long"
    ]
    assert result.provenance["platform"] == "cpu"


@pytest.mark.slow
def test_nearest_neighbors_classify_mnist(tfds_dir):
    dataset = data.open_dataset("mnist", shape=(28, 28, 1), data_dir=tfds_dir)
    train = data.Subset(dataset.train, np.arange(0, 60_000, 6))
    test = data.Subset(dataset.test, np.arange(0, 10_000, 10))
    (x, y), (test_x, test_y) = (
        search._flatten(data.as_arrays(split, (28, 28, 1))) for split in (train, test)
    )
    classifier = nearest_neighbors.compile_classifier(x, y, k=3, p=4, device=CPU.devices[0])
    predictions = classifier.predict(test_x)
    # From a sixth of the training set; from all of it, the accuracy is 0.9748.
    assert np.mean(predictions == test_y) > 0.94
