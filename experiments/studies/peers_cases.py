"""The networks, batch sizes and peers of the study `peers`."""

from collections.abc import Sequence

from experiments.config import RunConfig
from experiments.harness.study import Case
from experiments.peers.definition import define
from experiments.peers.process import ENVIRONMENT, PEERS, missing_packages
from experiments.peers.verdict import TOLERANCES
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known

# Network, batch size, and image size where it is not the published one.
CASES: tuple[tuple[str, int, int | None], ...] = (
    ("lenet_like", 128, None),
    ("mlp:1024", 128, None),
    ("mnist_cnn", 128, None),
    ("deep_mnist", 64, None),
    ("cifar_tutorial", 128, None),
    ("cats_vs_dogs", 16, 128),
    ("cats_vs_dogs", 4, 256),
    ("resnet18_cifar", 64, None),
    ("darknet19", 8, 128),
    ("depthwise_separable", 32, None),
    ("resnet50", 16, 64),
    ("resnet50", 4, None),
    ("alexnet", 16, None),
    ("resnet18", 7, 112),
    ("vgg11", 32, 32),
    ("resnet34", 16, 96),
    ("googlenet", 16, 96),
    ("mlp:3000", 48, None),
    ("odd_widths", 32, None),
    ("odd_residual", 24, None),
    ("mobilenet_v2", 32, 96),
    ("efficientnet_b0", 16, 96),
    ("convnext_tiny", 8, 96),
    ("cnn_3d", 4, None),
    ("densenet121", 16, 64),
)
GPU_CASES: tuple[tuple[str, int, int | None], ...] = tuple(
    (model, batch_size, None)
    for model in ("resnet50", "convnext_tiny", "efficientnet_b0")
    for batch_size in (256, 128, 512, 64)
)
LAUNCHES = {"quick": 1, "full": 5}
LEARNING_RATE = 1e-3
OPTIMIZERS = ("sgd", "momentum", "adam")
DEFAULT_BATCH_SIZE = 64  # of a network that is not among `CASES`


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each row of `CASES` or `GPU_CASES`, or those of the requested network.

    Raises:
      InputError: the device is a TPU, the precision is float16, or the peers do not have the
        network or the optimizer.
    """
    if backend.platform not in ENVIRONMENT:
        raise InputError(
            "study 'peers' compares libraries on a CPU or a GPU, and this is a "
            f"{backend.platform}: use --device=cpu or --device=gpu"
        )
    if config.precision not in TOLERANCES:
        raise InputError(
            f"study 'peers' compares in {' or '.join(TOLERANCES)}, "
            f"got --precision={config.precision}"
        )
    all_rows = CASES if backend.platform == "cpu" else GPU_CASES
    rows: Sequence[tuple[str, int, int | None]] = all_rows
    if config.preset != "full":
        rows = all_rows[:1]
    if config.model != RunConfig.model:
        define(config.model)
        rows = [row for row in all_rows if row[0] == config.model]
        rows = rows or [(config.model, DEFAULT_BATCH_SIZE, None)]
        rows = rows[:1] if config.batch_size or config.image_size else rows
    return [_case(config, backend.platform, *row) for row in rows]


def _case(
    config: RunConfig, platform: str, model: str, batch_size: int, image_size: int | None
) -> Case:
    definition = define(model)
    optimizer = config.optimizer or definition.optimizer.replace("rmsprop", "adam")
    require_known("optimizer of study peers", optimizer, OPTIMIZERS)
    defaults = {
        "batch_size": batch_size,
        "image_size": image_size or definition.input_shape[0],
        "learning_rate": LEARNING_RATE,
        "weight_decay": definition.weight_decay,
    }
    config = config.replace(model=model, optimizer=optimizer, strategy="jit")
    config = config.with_defaults(defaults)
    names = ("model", *defaults, "optimizer", "seed")
    settings = {name: getattr(config, name) for name in names}
    # With more packages installed it is another case.
    settings["launches"] = config.launches or LAUNCHES[config.preset]
    peers = peers_of(config, platform)
    settings["peers"] = [peer for peer in peers if not missing_packages(peer)]
    parts = [model, f"{config.image_size}x{config.image_size}", f"b{config.batch_size}"]
    if config.precision != "float32":
        settings["precision"] = config.precision
        parts.append(config.precision)
    return Case(config, settings, tuple(parts))


def peers_of(config: RunConfig, platform: str) -> list[str]:
    """All peers that can compute so; those that take a minute to compile in the full study."""
    return [
        peer
        for peer, row in PEERS.items()
        if (config.preset == "full" or "compiled" not in peer)
        and (config.precision == "float32" or row.in_bfloat16)
        and (platform == "cpu" or row.on_gpu)
    ]
