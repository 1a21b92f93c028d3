"""The MNIST quest (C7): classic models and small networks, ranked by their score and by the time that training them takes."""

import dataclasses
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.records.provenance import cpu_name
from experiments.studies import train
from experiments.studies.first_cnn import with_mnist
from experiments.workloads import nearest_neighbours
from jaxcnn import data
from jaxcnn.backend import Backend

COLUMNS = (
    "test_accuracy",
    "training_time",
    "compile_time",
    "prediction_time",
    "total_time",
    "parameters",
)
NETWORKS = {
    "quick": ("logistic", "mlp:128", "lenet_like"),
    "full": ("logistic", "mlp:128", "mlp:512", "lenet5", "lenet5_rbf", "lenet_like", "mnist_cnn"),
}
QUICK_EPOCHS = 5
TREES = {"quick": 100, "full": 1000}
PUBLISHED = {"algorithm": "ball_tree", "p": 4, "weights": "distance"}  # of the nearest neighbours
AT_MOST = 500  # test images for the ball tree: in 784 dimensions it takes about a second for each
ESTIMATORS = {
    "knn": ("sklearn.neighbors", "KNeighborsClassifier"),
    "random_forest": ("sklearn.ensemble", "RandomForestClassifier"),
    "linear": ("sklearn.linear_model", "LogisticRegression"),
    "perceptron": ("sklearn.neural_network", "MLPClassifier"),
}


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The classic models, the nearest neighbours once more on the accelerator, and the networks.

    Raises:
      InputError: the data are not there.
    """
    config = with_mnist(config)
    fingerprint = data.fingerprint(config.dataset, data_dir=config.data_dir)
    classics = [_classic(config, fingerprint, *row) for row in _classics(config.preset)]
    quick = {"epochs": QUICK_EPOCHS} if config.preset == "quick" else {}
    return [
        *classics,
        *(_network(config.with_defaults(quick), backend, name) for name in NETWORKS[config.preset]),
    ]


def _classics(preset: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, library, parameters."""
    return [
        *(
            (f"knn_{k}", "scikit-learn", PUBLISHED | {"n_neighbors": k, "test_images": AT_MOST})
            for k in (3, 4)
        ),
        *(
            (f"knn_{k}", "jax", {"p": 4, "weights": "distance", "n_neighbors": k})
            for k in {"quick": (3,), "full": (3, 4)}[preset]
        ),
        ("random_forest", "scikit-learn", {"n_estimators": TREES[preset]}),
        ("linear", "scikit-learn", {"max_iter": 100}),
        ("perceptron", "scikit-learn", {"hidden_layer_sizes": [100], "max_iter": 30}),
    ]


def _classic(
    config: RunConfig, fingerprint: str, name: str, library: str, parameters: dict[str, Any]
) -> Case:
    settings = {
        "model": name,
        "library": library,
        "dataset": config.dataset,
        "seed": config.seed,
        "parameters": parameters,
    }
    return Case(config, settings, (name, library, config.dataset), fingerprint)


def _network(config: RunConfig, backend: Backend, name: str) -> Case:
    return train.cases(config.replace(model=name), backend)[0]


def measure(case: Case, context: Context) -> CaseResult:
    """Fits one model and judges it by the test images."""
    if "library" not in case.settings:
        return train.measure(case, dataclasses.replace(context, console=Console(quiet=True)))
    began, config = time.perf_counter(), case.config
    dataset = data.open_dataset(
        config.dataset,
        shape=(28, 28, 1),
        data_dir=config.data_dir,
        skip_bad_images=config.skip_bad_images,
    )
    shape = dataset.train.read([0])[0][0].shape
    x, y = _flat(data.as_arrays(dataset.train, shape))
    kept = _spread(len(dataset.test), case.settings["parameters"].get("test_images"))
    test_x, test_y = _flat(data.as_arrays(data.Subset(dataset.test, kept), shape))
    predict, seconds, told = FITS[case.settings["library"]](case, context, x, y)
    start = time.perf_counter()
    found = predict(test_x)
    metrics = {
        "test_accuracy": float(np.mean(found == test_y)),
        "training_time": seconds,
        "prediction_time": (time.perf_counter() - start) / len(test_y),
        "total_time": time.perf_counter() - began,
    }
    few = f"judged by {len(kept)} of the {len(dataset.test):,} test images, evenly spread: each takes long"
    remarks = [
        *told.pop("remarks", []),
        *([f"{case.settings['model']}: {few}"] if len(kept) < len(dataset.test) else []),
    ]
    examples = {"train": len(y), "test": len(test_y)}
    return CaseResult(
        metrics, provenance=told | {"examples": examples, "remarks": remarks, "strategy_devices": 1}
    )


def _flat(arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 1, ``f32[N, D]``, and labels."""
    return arrays.images.reshape(len(arrays), -1).astype(np.float32) / 255, arrays.labels


def _spread(count: int, at_most: int | None) -> np.ndarray:
    """All rows, or so many of them, evenly spread."""
    return np.linspace(0, count - 1, min(count, at_most or count)).astype(int)


Fit = tuple[Callable[[np.ndarray], np.ndarray], float, dict[str, Any]]


def _fit_scikit_learn(case: Case, context: Context, x: np.ndarray, y: np.ndarray) -> Fit:
    """How to classify, the seconds of fitting, and what is to be known; on the processor, whatever JAX runs on."""
    estimator = _estimator(case.settings)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    told = {"platform": "cpu", "device_kind": "cpu", "accelerator": cpu_name(), "device_count": 1}
    unfinished = any(warning.category.__name__ == "ConvergenceWarning" for warning in caught)
    stopped = f"{case.settings['model']}: stopped after {case.settings['parameters'].get('max_iter')} rounds, not yet converged"
    return (
        estimator.predict,
        time.perf_counter() - start,
        told | {"remarks": [stopped] if unfinished else []},
    )


def _estimator(settings: dict[str, Any]) -> Any:
    kind = settings["model"].rstrip("_0123456789")
    module, name = ESTIMATORS[kind]
    options = {key: value for key, value in settings["parameters"].items() if key != "test_images"}
    options |= {"n_jobs": -1} if kind in ("knn", "random_forest") else {}
    options |= {} if kind == "knn" else {"random_state": settings["seed"]}
    return getattr(importlib.import_module(module), name)(**options)


def _fit_jax(case: Case, context: Context, x: np.ndarray, y: np.ndarray) -> Fit:
    """Nearest neighbours learn nothing: all their work is in the prediction, compiling included."""
    options = case.settings["parameters"]
    device = context.backend.devices[0]
    return (
        lambda test: nearest_neighbours.classify(
            x, y, test, k=options["n_neighbors"], p=options["p"], device=device
        ),
        0.0,
        {},
    )


FITS: dict[str, Callable[[Case, Context, np.ndarray, np.ndarray], Fit]] = {
    "scikit-learn": _fit_scikit_learn,
    "jax": _fit_jax,
}
