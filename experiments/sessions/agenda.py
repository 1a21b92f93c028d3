"""The whole study of an accelerator: command lines of `experiments.run`, the most valuable first.

With ``--time-limit-total`` and without ``--study`` they run in this order, as many as fit; what the
user gives on the command line takes precedence over the options of a line.
"""

from dataclasses import dataclass

from jaxcnn.models import MODELS


@dataclass(frozen=True)
class Item:
    """A part of the study.

    Attributes:
      about: what it tells.
      options: of `experiments.run`.
      on_host: whether it runs on the CPU of the machine, for comparison.
    """

    about: str
    options: tuple[str, ...]
    on_host: bool = False


# Enough images for ten steps of the batch; what they show makes no difference to the time.
_IMAGES = ("--dataset=synthetic:2560", "--batch-size=256")
_SHORT = ("--epochs=2", "--warmup=0")
# Above, or with a study of their own.
_SEPARATE = ("resnet50", "convnext_tiny", "efficientnet_b0", "yolov2")


def _train(model: str, *options: str) -> Item:
    """A few steps of one network; one by one, as each that is impossible is left out by itself."""
    shared = ("--study=train", f"--model={model}", "--precision=bfloat16", *_SHORT)
    return Item(f"{model}: images per second, MFU", (*shared, *options))


AGENDA: tuple[Item, ...] = (
    Item("operations: rates, bandwidth, share of the roofline", ("--study=kernels",)),
    Item(
        "ResNet-50: images per second, MFU, power",
        ("--study=train", "--model=resnet50", *_IMAGES, "--epochs=6", "--precision=bfloat16"),
    ),
    Item(
        "ResNet-50 beside PyTorch",
        ("--study=peers", "--model=resnet50", "--precision=bfloat16", "--launches=1"),
    ),
    Item("CIFAR-10 to 94 %", ("--study=speedrun", "--precision=bfloat16")),
    Item("five epochs of a first CNN", ("--study=first_cnn",)),
    Item("five epochs of a first CNN, on the CPU", ("--study=first_cnn",), True),
    Item("training time by the size of the network", ("--study=width_sweep",)),
    Item("training time by the size of the network, on the CPU", ("--study=width_sweep",), True),
    Item(
        "the largest batch of ResNet-50",
        ("--study=batch_sweep", "--model=resnet50", "--precision=bfloat16"),
    ),
    _train("convnext_tiny", *_IMAGES),
    _train("efficientnet_b0", *_IMAGES),
    *(
        Item(
            f"{name} beside PyTorch",
            ("--study=peers", f"--model={name}", "--precision=bfloat16", "--launches=1"),
        )
        for name in ("convnext_tiny", "efficientnet_b0")
    ),
    Item("latency of inference", ("--study=inference",)),
    Item("what lower precision gains and costs", ("--study=precision",)),
    Item("does it train the same network as the CPU?", ("--study=parity",)),
    Item("the same steps on the CPU", ("--study=parity",), True),
    Item("the cost of the training loop", ("--study=dispatch",)),
    *(
        _train(name, "--dataset=synthetic:640", "--batch-size=64")
        for name in MODELS
        if name not in _SEPARATE
    ),
    Item("several networks at once", ("--study=at_once",)),
    Item("requests that arrive at random", ("--study=serving",)),
)
