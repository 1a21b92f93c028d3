"""What a user gave and cannot be used: the one exception that a command line turns into one line and exit code 2."""

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Input that cannot be used. The message says what, which value, what is allowed, and the way out.

    Not a `ValueError`, which command-line libraries catch and dress up as their own.
    """


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises `InputError` naming the nearest match unless `name` is one of `known`.

    >>> require_known("model", "lenet6", ["lenet5", "mlp"])
    Traceback (most recent call last):
    jaxcnn.errors.InputError: unknown model 'lenet6': did you mean 'lenet5'? Known: lenet5, mlp
    """
    known = list(known)
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise InputError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(known)}")
