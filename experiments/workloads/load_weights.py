"""Loads a trained network with its preprocessing: from a checkpoint, or from Darknet or PyTorch."""

import json
from typing import Any

from etils import epath
from flax import nnx

from experiments.workloads.class_names import default_names, read_names
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.pretrained_model import (
    PretrainedModel,
    build_model,
    known_precision,
    with_options,
)
from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.training.checkpoint import MODEL_SOURCE

# Of ImageNet's channels, as torchvision's weights were trained with.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

DARKNET, SAFETENSORS = ".weights", ".safetensors"
IDENTITY_KEY = "jaxcnn.identity"  # JSON among the metadata of a .safetensors file
BOX_OUTPUTS = 5  # of an anchor of YOLOv2, in addition to one output per class


def load_pretrained(
    path: str, name: str | None, names_file: str | None, image_size: int | None
) -> PretrainedModel:
    """Builds a network and assigns weights to it.

    Args:
      path: the folder of a checkpoint, a ``.weights`` file (Darknet) or a ``.safetensors`` file (of
        PyTorch, or written by `experiments.export`).
      name: of the network. Default: that of the checkpoint or of the written file, or Darknet-19
        for a ``.weights`` file.
      names_file: a text file with the names of the classes, one per line. Default: those of the
        checkpoint or of the written file, or else Pascal VOC's for a detector of 20 classes, or
        ``class 0``, ….
      image_size: side of the network's input. Default: that of the weights, or the published one.

    Raises:
      InputError: the weights are missing or damaged, or do not fit the network or the names.
    """
    location = epath.Path(path).expanduser()
    if location.is_dir():
        return _load_checkpoint(location.resolve(), name, names_file, image_size)
    if location.exists() and location.suffix == SAFETENSORS:
        metadata = weights.read_metadata(location)
        name = name or metadata.get(weights.MODEL_KEY)
        if name is None:
            raise InputError(f"--weights={path} does not say which network it is for: give --model")
        if IDENTITY_KEY in metadata:
            return _load_written(location, name, metadata[IDENTITY_KEY], names_file, image_size)
    return _load_file(location, name or "darknet19", names_file, image_size)


def _load_checkpoint(
    folder: epath.Path, name: str | None, names_file: str | None, image_size: int | None
) -> PretrainedModel:
    identity = weights.read_identity(folder)
    saved_name, preprocessing = identity.get("model"), _read_preprocessing(folder, identity)
    if not isinstance(saved_name, str):
        raise InputError(f"the checkpoint in {folder} does not say which model it is of")
    notes: tuple[str, ...] = ()
    if MODEL_SOURCE in identity:
        saved_name, notes = _find_user_model(folder, identity, name)
    elif name not in (None, saved_name):
        raise InputError(
            f"the checkpoint in {folder} is of model {saved_name!r}, not {name!r}: "
            f"give --model={saved_name}"
        )
    preprocessing = with_options(preprocessing, names_file, image_size)
    return PretrainedModel(
        saved_name,
        build_model(saved_name, preprocessing, weights.read_checkpoint(folder)),
        preprocessing,
        precision=known_precision(folder, identity.get("precision", "float32")),
        from_checkpoint=True,
        notes=notes,
    )


def _find_user_model(
    folder: epath.Path, identity: dict[str, Any], name: str | None
) -> tuple[str, tuple[str, ...]]:
    """The name of the model of a checkpoint, a user's own one, and remarks on it.

    Args:
      folder: of the checkpoint.
      identity: of the checkpoint.
      name: where the user says that the model is; None for where it was in training.

    Raises:
      InputError: it is not there, or `name` is not that of a user's own model.
    """
    saved, source = identity["model"], identity[MODEL_SOURCE]
    if name is None and not _exists(source):
        raise InputError(
            f"the checkpoint in {folder} is of model {saved}, and there is no {source}: say where "
            f"the model is now, as in --model=PATH/{saved}"
        )
    if name is not None and not models.is_user_model(name):
        raise InputError(
            f"the checkpoint in {folder} is of model {saved}, not {name!r}: "
            f"give --model=PATH/{saved}"
        )
    user = models.load_user_model(name or source)
    if user.digest == identity.get("model_digest"):
        return user.name, ()
    return user.name, (f"{user.file} has changed since the network was trained",)


def _exists(source: str) -> bool:
    """Whether the file of a user's own model is there; modules are found by importing them."""
    target = source.rpartition(":")[0]
    return not target.endswith(".py") or epath.Path(target).exists()


def metadata_of(network: PretrainedModel) -> dict[str, str]:
    """What a ``.safetensors`` file must say so that `load_pretrained` restores the network."""
    identity = {
        "inputs": network.preprocessing.to_json(),
        "precision": network.precision,
        "from_checkpoint": network.from_checkpoint,
    }
    return {IDENTITY_KEY: json.dumps(identity, ensure_ascii=False)}


def _load_written(
    file: epath.Path, name: str, saved: str, names_file: str | None, image_size: int | None
) -> PretrainedModel:
    """Loads a file with the metadata of `metadata_of`."""
    try:
        identity = json.loads(saved)
        preprocessing = Preprocessing.from_json(identity["inputs"])
        precision = known_precision(file, identity["precision"])
        from_checkpoint = bool(identity["from_checkpoint"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: its metadata {IDENTITY_KEY} is damaged ({error})") from error
    shape, classes = preprocessing.network_shape, len(preprocessing.classes)
    abstract_model = nnx.eval_shape(
        lambda: models.build(name, num_classes=classes, input_shape=shape)
    )
    arrays = weights.read(file, name, abstract_model)
    preprocessing = with_options(preprocessing, names_file, image_size)
    model = build_model(name, preprocessing, arrays)
    return PretrainedModel(name, model, preprocessing, precision, from_checkpoint)


def _read_preprocessing(folder: epath.Path, identity: dict[str, Any]) -> Preprocessing:
    try:
        return Preprocessing.from_json(identity["inputs"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"the checkpoint in {folder} does not say how images were preprocessed: "
            "train the network again"
        ) from error


def _load_file(
    file: epath.Path, name: str, names_file: str | None, image_size: int | None
) -> PretrainedModel:
    row = models.spec(name)
    if row.input_shape is None:
        raise InputError(
            f"{file} is of a network of another framework, and model {models.label(name)} is your "
            "own: predict with a checkpoint of it"
        )
    arrays = weights.read(file, name, nnx.eval_shape(lambda: models.build(name)))
    is_darknet = file.suffix == DARKNET
    count = _class_count(file, arrays, row.detects)
    classes = (
        read_names(names_file, count, allow_more=is_darknet)
        if names_file
        else default_names(count, row.detects)
    )
    published_size, _, channels = row.input_shape
    size = image_size or published_size
    if is_darknet:
        preprocessing = Preprocessing(size, size, channels, classes)
    else:
        resize = max(size, round(row.recipe.resize * size / published_size))
        preprocessing = Preprocessing(size, resize, channels, classes, "standard", MEAN, STD)
    return PretrainedModel(name, build_model(name, preprocessing, arrays), preprocessing)


def _class_count(file: epath.Path, arrays: weights.Weights, detects: bool) -> int:
    """The number of classes of the last layer in a file."""
    if "out.bias" not in arrays:
        raise InputError(
            f"{file} has no last layer: a network can be trained from it, but it cannot classify"
        )
    outputs = len(arrays["out.bias"])
    if not detects:
        return outputs
    anchors = models.YOLOv2.ANCHORS
    if outputs % anchors or outputs // anchors <= BOX_OUTPUTS:
        raise InputError(
            f"{file} has {outputs} outputs in its last layer: a detector has {anchors} times "
            f"{BOX_OUTPUTS} + the number of its classes, such as 125"
        )
    return outputs // anchors - BOX_OUTPUTS
