"""A trained network and the pictures it wants: from a study's checkpoint, or from the files of Darknet or PyTorch."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from etils import epath
from flax import nnx

from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import models, weights
from jaxcnn.errors import InputError

# Pascal VOC's classes, in the order of Darknet's voc.names.
VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip

# Of ImageNet's channels: what torchvision's weights were trained with.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

DARKNET, PYTORCH = ".weights", ".safetensors"
STRIDE = 32  # from YOLOv2's pixels to its grid


@dataclass(frozen=True)
class Saved:
    """A trained network.

    Attributes:
      name: see `models.spec`.
      model: with its weights.
      preprocessing: the pictures it wants, and the names of its classes.
      precision: in which it was evaluated.
      ours: it comes from a checkpoint of a study.
    """

    name: str
    model: nnx.Module
    preprocessing: Preprocessing
    precision: str = "float32"
    ours: bool = False

    @property
    def detects(self) -> bool:
        return models.spec(self.name).detects


def open_saved(
    path: str, name: str | None, names_file: str | None, image_size: int | None
) -> Saved:
    """Builds the network that the weights are for, and puts them into it.

    Args:
      path: a checkpoint's folder, a ``.weights`` file (Darknet) or a ``.safetensors`` file (PyTorch).
      name: of the network; a checkpoint knows it, and a ``.weights`` file is taken for Darknet-19 without it.
      names_file: names of the classes, one a line; a checkpoint knows them.
      image_size: side of the images; that of the checkpoint, or the published one, if not given.

    Raises:
      InputError: there are no such weights, or they are damaged, or do not fit the network or the names.
    """
    place = epath.Path(path).expanduser()
    if place.is_dir():
        return _from_checkpoint(place.resolve(), name, names_file, image_size)
    if place.exists() and place.suffix == PYTORCH and name is None:
        raise InputError(f"--weights={path} does not say of which network it is: give --model")
    return _from_file(place, name or "darknet19", names_file, image_size)


def _from_checkpoint(
    place: epath.Path, name: str | None, names_file: str | None, image_size: int | None
) -> Saved:
    identity = weights.identity_of(place)
    found, preprocessing = identity.get("model"), _inputs_of(place, identity)
    if not isinstance(found, str):
        raise InputError(f"the checkpoint in {place} does not say of which model it is")
    if name not in (None, found):
        raise InputError(
            f"the checkpoint in {place} is of model {found!r}, not {name!r}; --model need not be given"
        )
    if image_size:
        resize = max(image_size, round(preprocessing.resize * image_size / preprocessing.size))
        preprocessing = dataclasses.replace(preprocessing, size=image_size, resize=resize)
    if names_file:
        preprocessing = dataclasses.replace(
            preprocessing, classes=_names(names_file, len(preprocessing.classes))
        )
    model = _filled(found, preprocessing, weights.weights_of(place))
    return Saved(found, model, preprocessing, identity.get("precision", "float32"), ours=True)


def _inputs_of(place: epath.Path, identity: dict[str, Any]) -> Preprocessing:
    try:
        return Preprocessing.from_json(identity["inputs"])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the checkpoint in {place} does not say what pictures it was trained on: train it anew"
        ) from error


def _from_file(
    place: epath.Path, name: str, names_file: str | None, image_size: int | None
) -> Saved:
    row = models.spec(name)
    found = weights.read(place, name, nnx.eval_shape(lambda: models.build(name)))
    darknet = place.suffix == DARKNET
    count = _count(place, found, row.detects)
    classes = (
        _names(names_file, count, surplus=darknet) if names_file else _unnamed(count, row.detects)
    )
    published, _, channels = row.input_shape
    size = image_size or published
    if darknet:
        preprocessing = Preprocessing(size, size, channels, classes)
    else:
        resize = max(size, round(row.recipe.resize * size / published))
        preprocessing = Preprocessing(size, resize, channels, classes, "standard", MEAN, STD)
    return Saved(name, _filled(name, preprocessing, found), preprocessing)


def _count(place: epath.Path, found: weights.Weights, detects: bool) -> int:
    """The number of classes that a file's last layer is for."""
    if "out.bias" not in found:
        raise InputError(
            f"{place} has no last layer: it can start a network's training, but tells no classes apart"
        )
    outputs = len(found["out.bias"])
    if not detects:
        return outputs
    anchors = models.YOLOv2.ANCHORS
    if outputs % anchors or outputs // anchors < 6:
        raise InputError(
            f"{place} has {outputs} outputs in its last layer: a detector has {anchors} times 5 + its classes, such as 125"
        )
    return outputs // anchors - 5


def _unnamed(count: int, detects: bool) -> tuple[str, ...]:
    return (
        VOC
        if detects and count == len(VOC)
        else tuple(f"class {number}" for number in range(count))
    )


def _names(file: str, count: int, *, surplus: bool = False) -> tuple[str, ...]:
    """A name a line, blank lines passed over.

    Args:
      file: the text.
      count: of the network's classes.
      surplus: more names than classes are no error, and the first are taken: Darknet's own list for its 1,000 classes,
        imagenet.shortnames.list, goes on with those of its other networks.
    """
    try:
        lines = epath.Path(file).expanduser().read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"--names={file} cannot be read ({reason})") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < count or (len(names) > count and not surplus):
        raise InputError(
            f"--names={file} has {len(names)} names, one a line; the network has {count} classes"
        )
    return names[:count]


def _filled(name: str, preprocessing: Preprocessing, found: weights.Weights) -> nnx.Module:
    if models.spec(name).detects and preprocessing.size % STRIDE:
        raise InputError(
            f"--image-size={preprocessing.size}: the detector needs a multiple of {STRIDE}"
        )
    model = models.build(
        name, num_classes=len(preprocessing.classes), input_shape=preprocessing.network_shape
    )
    weights.assign(model, found)
    return model
