"""The values that numeric options may have; larger ones are typing errors, or exhaust memory."""

import math

from jaxcnn.errors import InputError

MAX_IMAGE_SIZE = 8192  # pixels along a side
MAX_CLASSES = 10**6
# By option: the smallest and the largest value.
COUNTS = {
    "batch_size": (1, 2**30),
    "epochs": (1, 10**6),
    "image_size": (1, MAX_IMAGE_SIZE),
    "launches": (1, 1000),
    "memory_limit": (1, 2**50),
    "microbatches": (1, 2**20),
    "num_classes": (1, MAX_CLASSES),
    "patience": (1, 10**6),
    "resize": (1, MAX_IMAGE_SIZE),
    "save_every": (1, 10**9),
    "seed": (0, 2**31 - 1),
    "seeds": (1, 1000),
    "workers": (0, 256),
}
SECONDS = ("time_limit", "connect_timeout", "step_limit")
MAX_SECONDS = 10**8  # three years


def require_count(name: str, value: int) -> None:
    """Checks an option of `COUNTS`.

    Raises:
      InputError: the value is out of bounds.

    >>> require_count("workers", 8)
    """
    low, high = COUNTS[name]
    if not low <= value <= high:
        raise InputError(f"--{name.replace('_', '-')}={value}: must be from {low} to {high}")


def require_seconds(name: str, value: float) -> None:
    """Checks an option of `SECONDS`.

    Raises:
      InputError: the value is not positive, or longer than a computer runs.
    """
    if not 0 < value <= MAX_SECONDS or math.isnan(value):
        raise InputError(
            f"--{name.replace('_', '-')}={value}: must be a positive number of at most "
            f"{MAX_SECONDS:,} seconds"
        )
