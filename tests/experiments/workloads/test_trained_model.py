"""The network of a checkpoint fits its data, and rows are read at the stored shape."""

import numpy as np
import pytest

from experiments.config import RunConfig
from experiments.workloads import load_weights, trained_model
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import backend, data
from jaxcnn.errors import InputError


def test_weights_for_other_classes_are_rejected(monkeypatch):
    class Saved:
        preprocessing = Preprocessing(8, 8, 1, ("cat", "dog"))
        model = None

    monkeypatch.setattr(trained_model, "load_pretrained", lambda *_: Saved)
    config = RunConfig(model="lenet5", dataset="digits", init_from="somewhere")
    message = "--dataset=digits has 10 classes, the network of --init-from=somewhere 2"
    with pytest.raises(InputError, match=message):
        trained_model.load_or_train(config, backend.select("cpu"))


def test_weights_of_another_network_say_which_model_to_give(tmp_path, monkeypatch):
    """The default of --model counts as given, so that leaving it out would not help."""
    monkeypatch.setattr(load_weights.weights, "read_identity", lambda _: {"model": "mnist_cnn"})
    monkeypatch.setattr(load_weights, "_read_preprocessing", lambda *_: None)
    config = RunConfig(study="inference", init_from=str(tmp_path))
    message = "is of model 'mnist_cnn', not 'lenet5': give --model=mnist_cnn"
    with pytest.raises(InputError, match=message):
        trained_model.load_or_train(config, backend.select("cpu"))


def test_rows_of_a_split_are_fitted_to_the_stored_shape():
    preprocessing = Preprocessing(12, 12, 1, tuple("0123456789"))
    test = data.open_dataset("digits", shape=(8, 8, 1)).test
    (first, first_label), (_, fourth_label) = test.read([0, 3])
    images, labels = trained_model.read_rows(test, np.array([3, 0]), preprocessing)
    assert images.shape == (2, 12, 12, 1) and images.dtype == np.uint8
    np.testing.assert_array_equal(images[1, 2:10, 2:10], first)
    assert labels.tolist() == [fourth_label, first_label]
