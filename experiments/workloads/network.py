"""The network of a configuration, and the images it gets.

A network of `jaxcnn.models` has a published image size, a user's own model that of the data set.
"""

from flax import nnx

from experiments.config import RunConfig
from jaxcnn import data, models
from jaxcnn.errors import InputError

NUM_CLASSES = 10  # of images of noise


def image_size(config: RunConfig) -> int:
    """Side of the network's images: as configured, as published, or that of the data set.

    Raises:
      InputError: an unknown model or data set, or nothing says how large the images are.

    >>> image_size(RunConfig(model="mnist_cnn"))
    28
    """
    published = models.spec(config.model).input_shape
    if config.image_size:
        return config.image_size
    height, width, _ = published or data.image_shape(config.dataset, data_dir=config.data_dir)
    if height is None or width is None:
        raise InputError(
            f"model {models.label(config.model)} has no published image size, and neither have the "
            f"images of --dataset={config.dataset}: give --image-size"
        )
    return max(height, width)


def channels(config: RunConfig) -> int:
    """Channels of synthetic images for the network: as published, or as the data set has them."""
    published = models.spec(config.model).input_shape
    shape = published or data.image_shape(config.dataset, data_dir=config.data_dir)
    return shape[2]


def noise_settings(config: RunConfig) -> dict[str, int]:
    """The settings of a case on images of noise that are not those of the published network."""
    classes = {"num_classes": config.num_classes} if config.num_classes else {}
    if not models.is_user_model(config.model):
        return classes
    return {"num_classes": NUM_CLASSES, "channels": channels(config)} | classes


def dataset_name(config: RunConfig) -> str:
    """The name by which `data.open_dataset` opens the data set, with the number of classes."""
    kind, _, argument = config.dataset.partition(":")
    if kind != "synthetic" or not config.num_classes or ":" in argument:
        return config.dataset
    return f"synthetic:{argument}:{config.num_classes}"


def build_network(
    config: RunConfig, num_classes: int, input_shape: tuple[int, int, int]
) -> nnx.Module:
    """Builds the network with random weights.

    Raises:
      InputError: as `models.build`.
    """
    return models.build(
        config.model, num_classes=num_classes, input_shape=input_shape, seed=config.seed
    )


def check_outputs(config: RunConfig, num_classes: int, input_shape: tuple[int, int, int]) -> None:
    """Runs a user's own model once.

    Raises:
      InputError: its outputs are not finite.
    """
    if models.is_user_model(config.model):
        model = build_network(config, num_classes, input_shape)
        models.require_finite(model, input_shape, models.label(config.model))
