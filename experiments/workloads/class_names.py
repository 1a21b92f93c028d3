"""Names of the classes of a trained network: from a file, or by default."""

from etils import epath

from jaxcnn.errors import InputError

# The classes of Pascal VOC, in the order of Darknet's voc.names.
VOC = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)


def default_names(count: int, detects: bool) -> tuple[str, ...]:
    """Names of the classes of a file that has none: Pascal VOC's for a detector of 20 classes.

    >>> default_names(2, detects=False)
    ('class 0', 'class 1')
    """
    if detects and count == len(VOC):
        return VOC
    return tuple(f"class {number}" for number in range(count))


def read_names(file: str, count: int, *, allow_more: bool = False) -> tuple[str, ...]:
    """Reads the names of the classes, one per line; blank lines are skipped.

    Args:
      file: the text file.
      count: the number of the network's classes.
      allow_more: take the first `count` names if there are more. Darknet's own list of its 1,000
        classes, imagenet.shortnames.list, continues with those of its other networks.
    """
    try:
        lines = epath.Path(file).expanduser().read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(f"--names={file} cannot be read ({reason})") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < count or (len(names) > count and not allow_more):
        raise InputError(
            f"--names={file} has {len(names)} names, one per line; the network has {count} classes"
        )
    return names[:count]
