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
_SEEDS = "--seed=" + ",".join(map(str, range(20)))
_SHORT = ("--epochs=20", "--warmup=0", "--learning-rate=0.001")
# Above, or with a study of their own.
_SEPARATE = ("resnet50", "convnext_tiny", "efficientnet_b0", "yolov2")


def _train(model: str, *options: str) -> Item:
    """A few steps of one network; one by one, as each that is impossible is left out by itself."""
    shared = ("--study=train", f"--model={model}", "--precision=bfloat16", *_SHORT)
    return Item(f"{model}: images per second, MFU", (*shared, *options))


def _beside_pytorch(model: str, *options: str) -> Item:
    shared = ("--study=peers", f"--model={model}", "--precision=bfloat16", "--launches=1")
    batches = "one batch size" if options else "each at its best batch size"
    return Item(f"{model} beside PyTorch, {batches}", (*shared, *options))


AGENDA: tuple[Item, ...] = (
    Item("five epochs of a first CNN", ("--study=first_cnn",)),
    Item(
        "ResNet-50: images per second, MFU, power",
        ("--study=train", "--model=resnet50", *_IMAGES, "--epochs=20", "--precision=bfloat16"),
    ),
    _beside_pytorch("resnet50", "--batch-size=256"),
    Item("CIFAR-10 to 94 %", ("--study=speedrun", "--precision=bfloat16", "--seed=0,1,2,3,4")),
    Item("five epochs of a first CNN, on the CPU", ("--study=first_cnn",), True),
    Item("does it train the same network as the CPU?", ("--study=parity",)),
    Item("the same steps on the CPU", ("--study=parity",), True),
    Item("the cost of the training loop", ("--study=dispatch",)),
    _train("convnext_tiny", *_IMAGES),
    _train("efficientnet_b0", *_IMAGES),
    Item("CIFAR-10 to 94 %, 20 seeds", ("--study=speedrun", "--precision=bfloat16", _SEEDS)),
    Item("operations: rates, bandwidth, share of the roofline", ("--study=kernels",)),
    Item("training time by the size of the network", ("--study=width_sweep",)),
    Item("training time by the size of the network, on the CPU", ("--study=width_sweep",), True),
    Item(
        "the largest batch of ResNet-50",
        ("--study=batch_sweep", "--model=resnet50", "--precision=bfloat16"),
    ),
    *map(_beside_pytorch, ("resnet50", "convnext_tiny", "efficientnet_b0")),
    Item("latency of inference", ("--study=inference",)),
    Item("what lower precision gains and costs", ("--study=precision",)),
    *(
        _train(name, "--dataset=synthetic:640", "--batch-size=64")
        for name in MODELS
        if name not in _SEPARATE
    ),
    Item("several networks at once", ("--study=at_once",)),
    Item("requests that arrive at random", ("--study=serving",)),
)
