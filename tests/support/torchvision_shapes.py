"""Names and shapes of the tensors of torchvision's networks, as torchvision defines them."""

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    leaves = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{leaf}": (channels,) for leaf in leaves}


def linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def resnet(counts: tuple[int, ...], bottleneck: bool) -> Shapes:
    shapes = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    inputs, expansion = 64, 4 if bottleneck else 1
    for stage, count in enumerate(counts, 1):
        width = 64 * 2 ** (stage - 1)
        for block in range(count):
            name, outputs = f"layer{stage}.{block}", width * expansion
            convs = [(inputs, width, 3), (width, width, 3)]
            if bottleneck:
                convs = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
            for number, (before, after, side) in enumerate(convs, 1):
                shapes[f"{name}.conv{number}.weight"] = (after, before, side, side)
                shapes |= norm(f"{name}.bn{number}", after)
            if not block and (stage > 1 or bottleneck):
                shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= norm(f"{name}.downsample.1", outputs)
            inputs = outputs
    return shapes | linear("fc", inputs, 1000)


def vgg(plan: list[int | str]) -> Shapes:
    shapes, index, inputs = {}, 0, 3
    for width in plan:
        if width == "M":
            index += 1
            continue
        shapes[f"features.{index}.weight"] = (width, inputs, 3, 3)
        shapes[f"features.{index}.bias"] = (width,)
        inputs = width
        index += 2
    shapes |= linear("classifier.0", 25088, 4096)
    shapes |= linear("classifier.3", 4096, 4096)
    return shapes | linear("classifier.6", 4096, 1000)


def alexnet() -> Shapes:
    """The network of 2012, with two groups and LRN; torchvision's is a later one."""
    kernels = {
        0: (96, 3, 11, 11),
        4: (256, 48, 5, 5),
        8: (384, 256, 3, 3),
        10: (384, 192, 3, 3),
        12: (256, 192, 3, 3),
    }
    shapes = {f"features.{index}.weight": shape for index, shape in kernels.items()}
    shapes |= {f"features.{index}.bias": shape[:1] for index, shape in kernels.items()}
    shapes |= linear("classifier.1", 9216, 4096)
    shapes |= linear("classifier.4", 4096, 4096)
    return shapes | linear("classifier.6", 4096, 1000)


TORCHVISION: dict[str, Shapes] = {
    "resnet18": resnet((2, 2, 2, 2), False),
    "resnet34": resnet((3, 4, 6, 3), False),
    "resnet50": resnet((3, 4, 6, 3), True),
    "resnet101": resnet((3, 4, 23, 3), True),
    "resnet152": resnet((3, 8, 36, 3), True),
    "vgg11": vgg([64, "M", 128, "M", *[256] * 2, "M", *[512] * 2, "M", *[512] * 2, "M"]),
    "vgg16": vgg([64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"]),
    "vgg19": vgg([64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"]),
    "alexnet": alexnet(),
}
