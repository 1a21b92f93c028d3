"""The exception for invalid user input. Command lines print it as one line and exit with code 2."""

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Invalid user input.

    The message says what is wrong, which value was passed, what is allowed and how to proceed.

    Not a `ValueError`, because command-line libraries catch `ValueError` and replace its message.

    Attributes:
      details: further lines, such as the traceback of a user's own code; mostly empty.
    """

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message; the name of its type if it has no message.

    >>> first_line(OSError("the disk is full\nDetails: …")), first_line(KeyboardInterrupt())
    ('the disk is full', 'KeyboardInterrupt')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Checks that `name` is one of `known`.

    Args:
      kind: what is named, for the message.
      name: the name to check.
      known: the valid names.

    Raises:
      InputError: `name` is not one of `known`; the message suggests the closest match.

    >>> require_known("model", "lenet6", ["lenet5", "mlp"])
    Traceback (most recent call last):
    jaxcnn.errors.InputError: unknown model 'lenet6': did you mean 'lenet5'? Known: lenet5, mlp
    """
    known = list(known)
    if name in known:
        return
    closest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {closest[0]!r}? " if closest else ""
    raise InputError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(known)}")
