"""Classic models and small networks on handwritten digits, by accuracy and by time.

The classic models are those of Frigaard's lecture (ITMAL, lesson 09, 2021), in which students
looked for the best classifier of MNIST.
"""

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
from experiments.studies import train, train_cases
from experiments.studies.first_cnn import with_mnist
from experiments.workloads import nearest_neighbors
from experiments.workloads.reading import evenly_spaced
from jaxcnn import data
from jaxcnn.backend import Backend
from jaxcnn.chips import cpu_name
from jaxcnn.data.source import ArraySplit

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
JAX_NEIGHBORS = {"quick": (3,), "full": (3, 4)}
PUBLISHED_NEIGHBORS = {"algorithm": "ball_tree", "p": 4, "weights": "distance"}
# Of the test images, for the ball tree: in 784 dimensions it takes about a second for each.
MAX_TEST_IMAGES = 500
ESTIMATORS = {  # module and class
    "knn": ("sklearn.neighbors", "KNeighborsClassifier"),
    "random_forest": ("sklearn.ensemble", "RandomForestClassifier"),
    "linear": ("sklearn.linear_model", "LogisticRegression"),
    "perceptron": ("sklearn.neural_network", "MLPClassifier"),
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """A classic model that has been fitted.

    Attributes:
      predict: from rows ``f32[N, D]`` to classes ``i32[N]``.
      seconds: that fitting took.
      metrics: seconds of compiling, or of loading from a cache; empty if nothing is compiled.
      provenance: what goes into the record's, beside what every record has.
      remarks: what a reader should know.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    seconds: float
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The classic models, nearest neighbors also in JAX, and the networks.

    Raises:
      InputError: the data are missing.
    """
    config = with_mnist(config)
    fingerprint = data.fingerprint(config.dataset, data_dir=config.data_dir)
    classic = [_classic_case(config, fingerprint, *row) for row in _classic_models(config.preset)]
    quick = {"epochs": QUICK_EPOCHS} if config.preset == "quick" else {}
    training_config = config.with_defaults(quick)
    networks = [
        train_cases.cases(training_config.replace(model=name), backend)[0]
        for name in NETWORKS[config.preset]
    ]
    return [*classic, *networks]


def _classic_models(preset: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, library and parameters of each classic model."""
    sklearn_neighbors = PUBLISHED_NEIGHBORS | {"test_images": MAX_TEST_IMAGES}
    jax_neighbors = {"p": 4, "weights": "distance"}
    return [
        *((f"knn_{k}", "scikit-learn", sklearn_neighbors | {"n_neighbors": k}) for k in (3, 4)),
        *((f"knn_{k}", "jax", jax_neighbors | {"n_neighbors": k}) for k in JAX_NEIGHBORS[preset]),
        ("random_forest", "scikit-learn", {"n_estimators": TREES[preset]}),
        ("linear", "scikit-learn", {"max_iter": 100}),
        ("perceptron", "scikit-learn", {"hidden_layer_sizes": [100], "max_iter": 30}),
    ]


def _classic_case(
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


def is_training_run(case: Case) -> bool:
    """Whether a case is a network, not one of the classic models."""
    return "library" not in case.settings


def check(case: Case) -> None:
    """Rejects impossible networks by `train_cases.check`; the classic models take any data."""
    if is_training_run(case):
        train_cases.check(case)


def measure(case: Case, context: Context) -> CaseResult:
    """Fits one model and evaluates it on the test images."""
    if is_training_run(case):
        return train.measure(case, dataclasses.replace(context, console=Console(quiet=True)))
    start, config = time.perf_counter(), case.config
    dataset = data.open_dataset(
        config.dataset,
        shape=(28, 28, 1),
        data_dir=config.data_dir,
        skip_bad_images=config.skip_bad_images,
    )
    shape = dataset.train.read([0])[0][0].shape
    x, y = _flatten(data.as_arrays(dataset.train, shape))
    count = len(dataset.test)
    rows = evenly_spaced(count, case.settings["parameters"].get("test_images") or count)
    test_x, test_y = _flatten(data.as_arrays(data.Subset(dataset.test, rows), shape))
    fit = FITS[case.settings["library"]](case, context, x, y)
    prediction_start = time.perf_counter()
    predictions = fit.predict(test_x)
    prediction_time = (time.perf_counter() - prediction_start) / len(test_y)
    remarks = list(fit.remarks)
    if len(rows) < len(dataset.test):
        remarks.append(
            f"{case.settings['model']}: evaluated on {len(rows)} of the {len(dataset.test):,} test "
            "images, evenly spaced, as each takes long"
        )
    return CaseResult(
        metrics={
            "test_accuracy": float(np.mean(predictions == test_y)),
            "training_time": fit.seconds,
            **fit.metrics,
            "prediction_time": prediction_time,
            "total_time": time.perf_counter() - start,
        },
        provenance=fit.provenance
        | {
            "examples": {"train": len(y), "test": len(test_y)},
            "remarks": remarks,
            "strategy_devices": 1,
        },
    )


def _flatten(arrays: ArraySplit) -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 1, ``f32[N, D]``, and labels ``i32[N]``."""
    return arrays.images.reshape(len(arrays), -1).astype(np.float32) / 255, arrays.labels


def _fit_scikit_learn(case: Case, context: Context, x: np.ndarray, y: np.ndarray) -> Fit:
    """Fits a model of scikit-learn, which runs on the CPU whatever device JAX uses."""
    estimator = _make_estimator(case.settings)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    seconds = time.perf_counter() - start
    cpu = {"platform": "cpu", "device_kind": "cpu", "accelerator": cpu_name(), "device_count": 1}
    remarks: tuple[str, ...] = ()
    if any(warning.category.__name__ == "ConvergenceWarning" for warning in caught):
        iterations = case.settings["parameters"].get("max_iter")
        remarks = (
            f"{case.settings['model']}: stopped after {iterations} iterations without converging",
        )
    return Fit(estimator.predict, seconds, provenance=cpu, remarks=remarks)


def _make_estimator(settings: dict[str, Any]) -> Any:
    kind = settings["model"].rstrip("_0123456789")
    module, name = ESTIMATORS[kind]
    options = {key: value for key, value in settings["parameters"].items() if key != "test_images"}
    if kind in ("knn", "random_forest"):
        options["n_jobs"] = -1
    if kind != "knn":
        options["random_state"] = settings["seed"]
    return getattr(importlib.import_module(module), name)(**options)


def _fit_jax(case: Case, context: Context, x: np.ndarray, y: np.ndarray) -> Fit:
    """Nearest neighbors learn nothing: their time is that of compiling and of predicting."""
    parameters, device = case.settings["parameters"], context.backend.devices[0]
    k, p = parameters["n_neighbors"], parameters["p"]
    classifier = nearest_neighbors.compile_classifier(x, y, k=k, p=p, device=device)
    return Fit(classifier.predict, 0.0, metrics=classifier.metrics)


FITS: dict[str, Callable[[Case, Context, np.ndarray, np.ndarray], Fit]] = {
    "scikit-learn": _fit_scikit_learn,
    "jax": _fit_jax,
}
