"""`weights.read` chooses the reader by the kind of file."""

import re

import numpy as np
import pytest
from flax import nnx

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from tests.support.small_weights import random_weights, small_net


def test_other_suffixes_and_missing_files_are_refused(tmp_path):
    (tmp_path / "a.pth").write_bytes(b"")
    with pytest.raises(
        InputError,
        match=r"a\.pth: expected a \.weights file .*, a \.safetensors file .* or a checkpoint "
        "folder",
    ):
        weights.read(tmp_path / "a.pth", "lenet5", small_net())
    with pytest.raises(InputError, match=r"there is no file or folder .*b\.weights"):
        weights.read(tmp_path / "b.weights", "darknet19", small_net())


@pytest.mark.parametrize(
    ("suffix", "model_name", "message"),
    [
        ("weights", "darknet19", "fewer than the 20 of a header"),
        ("safetensors", "resnet18", "is not a .safetensors"),
    ],
)
def test_the_suffix_chooses_the_reader(tmp_path, suffix, model_name, message):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"")
    with pytest.raises(InputError, match=message):
        weights.read(path, model_name, nnx.eval_shape(lambda: models.build(model_name)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(tmp_path, value):
    model = models.build("lenet5")
    arrays = random_weights(model)
    name = min(arrays)
    arrays[name] = np.full_like(arrays[name], value)
    (tmp_path / "a.safetensors").write_bytes(weights.to_safetensors(arrays, "lenet5"))
    with pytest.raises(InputError, match=rf"NaN or infinite values in {re.escape(name)};"):
        weights.read(tmp_path / "a.safetensors", "lenet5", model)
