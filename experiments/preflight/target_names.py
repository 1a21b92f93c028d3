"""The names of targets: those of vendors and clouds, and suggestions for one that is unknown."""

import difflib
import re
from collections.abc import Iterable, Mapping

from jaxcnn.errors import InputError

NUMBER = r"[1-9]\d{0,5}"  # of devices, chips or cores
_SUGGESTIONS = 5
_LONGEST_NAME = 60  # that a message shows whole
# Google's accelerator types: v5litepod counts chips like our v5e; tpu7x counts cores, of which a
# chip has two, where our 7x counts chips.
_ACCELERATOR_TYPES = (("v5litepod", "v5e", 1), ("v5lite", "v5e", 1), ("tpu7x", "7x", 2))


def canonical(name: str, aliases: Mapping[str, str]) -> str:
    """The name of a target as this package writes it; unknown names are returned without change.

    Case does not matter, nor does a missing ``tpu-`` or ``gpu-``.

    Args:
      name: as the user wrote it.
      aliases: names by other names, all without prefix and size.

    Raises:
      InputError: Google's name of a slice with half a chip.

    >>> canonical("v5litepod-8", {}), canonical("tpu7x-8", {})
    ('tpu-v5e-8', 'tpu-7x-4')
    >>> canonical("A100-40GB-8", {"a100-40gb": "gpu-a100", "t4": "gpu-t4"})
    'gpu-a100-8'
    """
    folded = re.sub(r"[\s_]+", "-", name.strip().casefold())
    bare = re.sub(r"^(?:tpu-|gpu-|nvidia-(?:tesla-)?)", "", folded)
    for google, ours, cores in _ACCELERATOR_TYPES:
        if match := re.fullmatch(rf"{google}(?:-({NUMBER})|(:.*))?", bare):
            return f"tpu-{ours}" + _size(name, match[1], match[2], cores)
    if folded in aliases.values():
        return folded
    for alias in sorted(aliases, key=len, reverse=True):
        if match := re.fullmatch(rf"{re.escape(alias)}((?:-{NUMBER}|:.*)?)", bare):
            return aliases[alias] + match[1]
    return folded


def _size(name: str, number: str | None, shape: str | None, cores: int) -> str:
    if number is None:
        return shape or ""
    chips, remainder = divmod(int(number), cores)
    if remainder:
        raise InputError(
            f"--target={name}: the number counts cores, of which a chip has {cores}: "
            f"write a multiple of {cores}"
        )
    return f"-{chips}"


def unknown(name: str, known: Iterable[str]) -> InputError:
    """The error about a target that does not exist, with those whose names are nearest.

    >>> str(unknown("gpu-h1000", ["gpu-h100", "gpu-t4", "tpu-v5e-1"]))[:60]
    "unknown target 'gpu-h1000': did you mean gpu-h100 or gpu-t4?"
    """
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    nearest = difflib.get_close_matches(name.casefold(), known, n=_SUGGESTIONS, cutoff=0.5)
    hint = f"did you mean {_enumerate(nearest)}? " if nearest else ""
    return InputError(f"unknown target {name!r}: {hint}--list-targets shows all")


def _enumerate(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
