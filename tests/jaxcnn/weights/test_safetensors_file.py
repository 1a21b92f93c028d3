"""Written ``.safetensors`` files: their names, axes and metadata, and that they are read again."""

import json
import struct

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load, save

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.weights.pytorch import TIMM_EPSILONS, to_torch
from jaxcnn.weights.torch_names import NAMINGS, naming_schemes
from tests.support.small_weights import array_values, random_weights

# Networks of which one is built quickly, of each kind of array.
QUICK = ("resnet18", "convnext_tiny", "squeezenet1_1", "shufflenet_v2")
SIZE = (32, 32, 3)


def small(name: str) -> nnx.Module:
    return models.build(name, num_classes=3, input_shape=SIZE)


def read_header(content: bytes) -> dict:
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length])


def test_our_layout_has_our_names_and_axes_and_is_read_again(tmp_path):
    model = models.build("lenet5")
    arrays = random_weights(model)
    content = weights.to_safetensors(arrays, "lenet5", metadata={"note": "café"})
    written = load(content)
    assert written.keys() == arrays.keys()
    assert all(np.array_equal(written[name], arrays[name]) for name in arrays)
    assert read_header(content)["__metadata__"] == {
        "format": "flax",
        "jaxcnn.model": "lenet5",
        "note": "café",
    }
    (tmp_path / "a.safetensors").write_bytes(content)
    assert weights.read_metadata(tmp_path / "a.safetensors")["note"] == "café"
    assert weights.assign(model, weights.read(tmp_path / "a.safetensors", "lenet5", model)) == []
    assert all(np.array_equal(array, arrays[name]) for name, array in array_values(model).items())


@pytest.mark.parametrize("layout", ["jaxcnn", "pytorch"])
@pytest.mark.parametrize("name", QUICK)
def test_every_array_survives_the_round_trip(tmp_path, name, layout):
    model = nnx.eval_shape(lambda: small(name))
    arrays = random_weights(model)
    content = weights.to_safetensors(arrays, name, layout=layout)
    (tmp_path / "a.safetensors").write_bytes(content)
    read = weights.read(tmp_path / "a.safetensors", name, model)
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[key], arrays[key]) for key in arrays)


def test_axes_in_pytorchs_layout():
    """Element by element: a kernel, a grouped kernel, a layer scale, a dense layer."""
    arrays = random_weights(nnx.eval_shape(lambda: small("convnext_tiny")))
    written = load(weights.to_safetensors(arrays, "convnext_tiny", layout="pytorch"))
    stem, depthwise = (
        arrays["downsamples.0.conv.kernel"],
        arrays["stages.0.layers.0.depthwise.kernel"],
    )
    assert written["features.0.0.weight"].shape == (96, 3, 4, 4)
    assert written["features.0.0.weight"][5, 2, 1, 3] == stem[1, 3, 2, 5]
    assert written["features.1.0.block.0.weight"].shape == (96, 1, 7, 7)
    assert written["features.1.0.block.0.weight"][5, 0, 1, 3] == depthwise[1, 3, 0, 5]
    assert written["features.1.0.layer_scale"].shape == (96, 1, 1)
    assert written["classifier.2.weight"][1, 7] == arrays["out.kernel"][7, 1]


def test_a_dense_layer_over_flattened_images_in_pytorchs_layout():
    shape = (2, 3, 512, 7)  # height, width, channels, outputs
    kernel = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    dense = to_torch("dense1.kernel", kernel.reshape(-1, 7))
    assert dense.shape == (7, 512 * 2 * 3)
    assert dense[4, 9 * 6 + 1 * 3 + 2] == kernel[1, 2, 9, 4]


def test_a_network_without_names_in_pytorch_is_refused():
    with pytest.raises(
        InputError, match=r"'lenet5' has no names in PyTorch; only .* layout jaxcnn"
    ):
        weights.to_safetensors({}, "lenet5", layout="pytorch")
    with pytest.raises(InputError, match="unknown layout 'hwio'"):
        weights.to_safetensors({}, "lenet5", layout="hwio")
    assert "wide_resnet28_10" not in NAMINGS


def test_a_file_of_another_network_says_which(tmp_path):
    content = weights.to_safetensors(random_weights(models.build("lenet5")), "lenet5")
    (tmp_path / "a.safetensors").write_bytes(content)
    for name in ("lenet_like", "deep_mnist"):
        with pytest.raises(InputError, match=f"tensors of {name}|of another shape"):
            model = models.build(name)
            weights.assign(model, weights.read(tmp_path / "a.safetensors", name, model))
    with pytest.raises(
        InputError, match=r"lacks .* tensors of resnet18, .*: it seems to be lenet5$"
    ):
        weights.read(
            tmp_path / "a.safetensors", "resnet18", nnx.eval_shape(lambda: small("resnet18"))
        )


def test_a_head_for_other_classes_is_replaced(tmp_path):
    """SqueezeNet's is a convolution."""
    name = "squeezenet1_1"
    arrays = random_weights(nnx.eval_shape(lambda: small(name)))
    content = weights.to_safetensors(arrays, name, layout="pytorch")
    (tmp_path / "a.safetensors").write_bytes(content)
    model = models.build(name, num_classes=5, input_shape=SIZE)
    read = weights.read(tmp_path / "a.safetensors", name, model)
    assert read["out.kernel"].shape == (1, 1, 512, 3)
    assert weights.assign(model, read, new_head=True) == ["out.bias", "out.kernel"]
    assert models.heads(model) == ("out",)


def test_variances_from_timm_make_up_for_its_epsilon(tmp_path):
    """MobileNetV3 has an epsilon of 0.001 here and of 0.00001 in timm: sqrt(v + e) is the same."""
    model = nnx.eval_shape(lambda: small("mobilenet_v3_large"))
    arrays, shapes = random_weights(model), weights.array_shapes(model)
    names = naming_schemes("mobilenet_v3_large", set(arrays))["timm"]
    axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    tensors = {
        names[name]: np.ascontiguousarray(array.transpose(axes[array.ndim]))
        for name, array in arrays.items()
    }
    tensors["conv_head.weight"] = tensors["conv_head.weight"][:, :, None, None]
    (tmp_path / "timm.safetensors").write_bytes(save(tensors))
    read = weights.read(tmp_path / "timm.safetensors", "mobilenet_v3_large", model)
    assert {name: array.shape for name, array in read.items()} == shapes
    assert np.array_equal(read["dense.kernel"], arrays["dense.kernel"])
    np.testing.assert_allclose(
        np.float64(read["stem.norm.var"]) + 1e-3, arrays["stem.norm.var"] + 1e-5, atol=1e-6
    )
    assert TIMM_EPSILONS == {"mobilenet_v3_large": (1e-5, 1e-3)}


def test_a_scalar_stays_a_scalar():
    content = weights.to_safetensors({"temperature": np.float32(2)}, "mine")
    assert load(content)["temperature"].shape == ()
