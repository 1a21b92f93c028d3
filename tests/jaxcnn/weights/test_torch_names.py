"""Names of the tensors of torchvision and timm, compared with digests of the libraries' own."""

import functools

import pytest
from flax import nnx

from jaxcnn import models, weights
from jaxcnn.weights.torch_identify import identify_network
from jaxcnn.weights.torch_names import naming_schemes
from tests.support.torch_digests import DIGESTS, digest

Shape = tuple[int, ...]


@functools.cache
def shapes_of(name: str) -> dict[str, Shape]:
    return weights.array_shapes(nnx.eval_shape(lambda: models.build(name)))


def torch_shape(torch_name: str, shape: Shape) -> Shape:
    """The shape in PyTorch of one of our arrays."""
    if torch_name.endswith(".layer_scale"):
        return (*shape, 1, 1)
    if torch_name == "conv_head.weight":  # a dense layer, in timm a 1×1 convolution
        return (shape[-1], shape[-2], 1, 1)
    return {1: shape, 2: shape[::-1], 4: (*shape[:1:-1], *shape[:2])}[len(shape)]


@pytest.mark.parametrize(
    ("name", "library"), [(name, library) for name in DIGESTS for library in DIGESTS[name]]
)
def test_names_and_shapes_are_those_of_the_library(name, library):
    shapes = shapes_of(name)
    schemes = naming_schemes(name, set(shapes))
    torch_name_of = schemes.get(library) or schemes["torchvision"]  # timm has the same names
    named = {torch: torch_shape(torch, shapes[ours]) for ours, torch in torch_name_of.items()}
    assert len(named) == len(shapes)
    assert digest(named) == DIGESTS[name][library][1]


@pytest.mark.parametrize("name", DIGESTS)
def test_a_network_is_identified_by_its_names_in_every_naming(name):
    for scheme in naming_schemes(name, set(shapes_of(name))).values():
        assert name in identify_network(set(scheme.values())).split(" or ")


@pytest.mark.parametrize(
    ("name", "ours", "torchvision", "timm"),
    [
        (
            "mobilenet_v2",
            "stages.layers.1.layers.0.project.norm.var",
            "features.2.conv.3.running_var",
            "blocks.1.0.bn3.running_var",
        ),
        (
            "mobilenet_v3_large",
            "stages.layers.2.layers.0.excite.reduce.kernel",
            "features.4.block.2.fc1.weight",
            "blocks.2.0.se.conv_reduce.weight",
        ),
        (
            "efficientnet_v2_s",
            "stages.layers.0.layers.1.expand.conv.kernel",
            "features.1.1.block.0.0.weight",
            "blocks.0.1.conv.weight",
        ),
        (
            "convnext_tiny",
            "stages.2.layers.8.layer_scale.scale",
            "features.5.8.layer_scale",
            "stages.2.blocks.8.gamma",
        ),
        (
            "regnet_y_400mf",
            "stages.layers.3.layers.5.conv2.norm.scale",
            "trunk_output.block4.block4-5.f.b.1.weight",
            "s4.b6.conv2.bn.weight",
        ),
    ],
)
def test_single_names(name, ours, torchvision, timm):
    schemes = naming_schemes(name, set(shapes_of(name)))
    assert (schemes["torchvision"][ours], schemes["timm"][ours]) == (torchvision, timm)


def test_names_in_the_published_file_of_densenet():
    names = naming_schemes("densenet121", set(shapes_of("densenet121")))
    older = names["torchvision's published file"]
    assert older["blocks.0.layers.5.conv.kernel"] == (
        "features.denseblock1.denselayer6.conv.2.weight"
    )
    assert older["transitions.0.norm.norm.mean"] == "features.transition1.norm.running_mean"
