"""Which network a PyTorch file with given names probably contains."""

from jaxcnn.weights.torch_names import ALEXNET, NAMINGS, RESNETS, VGGS

# Of each network in each naming: a name that it has, and one that only a larger relative has.
SIGNATURES = (
    ("squeezenet1_1", "features.12.squeeze.weight", "features.5.squeeze.weight"),
    ("shufflenet_v2", "stage4.3.branch2.5.weight", "stage4.4.branch2.5.weight"),
    (
        "densenet121",
        "features.denseblock3.denselayer24.norm1.weight",
        "features.denseblock3.denselayer25.norm1.weight",
    ),
    (
        "densenet121",
        "features.denseblock3.denselayer24.norm.1.weight",
        "features.denseblock3.denselayer25.norm.1.weight",
    ),
    ("mobilenet_v2", "features.17.conv.3.weight", "features.19.0.weight"),
    ("mobilenet_v2", "blocks.6.0.conv_pwl.weight", "blocks.6.0.se.conv_reduce.weight"),
    ("mobilenet_v3_large", "features.15.block.3.0.weight", "features.17.0.weight"),
    ("mobilenet_v3_large", "blocks.5.2.se.conv_reduce.weight", "blocks.5.3.conv_pw.weight"),
    ("efficientnet_b0", "features.6.3.block.3.0.weight", "features.6.4.block.3.0.weight"),
    ("efficientnet_b0", "blocks.5.3.se.conv_reduce.weight", "blocks.5.4.conv_pw.weight"),
    ("efficientnet_v2_s", "features.6.14.block.3.0.weight", "features.6.15.block.3.0.weight"),
    ("efficientnet_v2_s", "blocks.5.14.se.conv_reduce.weight", "blocks.5.15.conv_pw.weight"),
    ("convnext_tiny", "features.5.8.block.5.weight", "features.5.9.block.5.weight"),
    ("convnext_tiny", "stages.2.blocks.8.mlp.fc1.weight", "stages.2.blocks.9.mlp.fc1.weight"),
    (
        "regnet_y_400mf",
        "trunk_output.block4.block4-5.f.se.fc1.weight",
        "trunk_output.block4.block4-6.f.se.fc1.weight",
    ),
    ("regnet_y_400mf", "s4.b6.se.fc1.weight", "s4.b7.se.fc1.weight"),
)


def identify_network(file_names: set[str]) -> str:
    """The network that a file with these names probably contains, in words.

    >>> identify_network(
    ...     {f"layer{stage}.{block}.conv1.weight" for stage in (1, 2, 3, 4) for block in (0, 1)}
    ... )
    'resnet18'
    >>> identify_network({"encoder.weight"}).split(", ")[:3]
    ['none of resnet18', 'resnet34', 'resnet50']
    """
    blocks = {tuple(name.split(".")[:2]) for name in file_names if name.startswith("layer")}
    stages = tuple(sum(stage == f"layer{number}" for stage, _ in blocks) for number in (1, 2, 3, 4))
    row = stages, "layer1.0.conv3.weight" in file_names
    if resnets := [name for name in RESNETS if RESNETS[name] == row]:
        return " or ".join(resnets)
    for model_name, present, absent in SIGNATURES:
        if present in file_names and absent not in file_names:
            return model_name
    return _identify_features(file_names)


def _identify_features(file_names: set[str]) -> str:
    """Identifies AlexNet and VGG, whose names differ only in their numbers."""
    features = {name for name in file_names if name.startswith("features.")}
    convs = sum(name.endswith(".weight") for name in features)
    if any(name.endswith(".running_mean") for name in features):
        return "a network with batch norm among its features, such as vgg16_bn"
    if convs == len(ALEXNET) - 3:
        if "features.4.weight" in features:
            return "alexnet"
        return "torchvision's alexnet, a later one without groups"
    matches = [model_name for model_name, count in VGGS.items() if count == convs]
    return matches[0] if matches else f"none of {', '.join(NAMINGS)}"
