"""A user's own model by its name: ``package.module:Factory`` or ``./file.py:Factory``.

The name on the command line says where the model is. Its label is the same on every machine, and
with the digest of its file it says which model a record or a checkpoint is of.
"""

import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxcnn.errors import InputError
from jaxcnn.models.table import MODELS
from jaxcnn.models.user_code import syntax_error, user_code_errors


@dataclass(frozen=True)
class UserModel:
    """A model in a file of a user's own.

    Attributes:
      name: that finds it from any folder: ``/absolute/file.py:Factory`` or
        ``package.module:Factory``.
      label: the name without folders.
      file: where it is.
      digest: sixteen hexadecimal digits that change with the file; files that it imports do not
        count.
      folder: that contains the user's code: the file's, or that of the whole package.
      factory: what the name stands for.
    """

    name: str
    label: str
    file: Path
    digest: str
    folder: Path
    factory: Any


@dataclass(frozen=True)
class _Loaded:
    """A module that has been imported; the fields are those of `UserModel`."""

    module: ModuleType
    file: Path
    folder: Path
    digest: str


def is_user_model(name: str) -> bool:
    """Whether a name is that of a user's own model, which may not exist.

    >>> is_user_model("./net.py:Net"), is_user_model("nets.small:Net"), is_user_model("mlp:4096")
    (True, True, False)
    """
    target, colon, attribute = name.rpartition(":")
    if _is_path(target or name):
        return True
    return bool(colon) and name.partition(":")[0] not in MODELS and not attribute.isdigit()


def label(name: str) -> str:
    """The name by which a record has a model: without folders, so the same on every machine.

    >>> label("~/nets/net.py:Net"), label("nets.small:Net"), label("lenet5")
    ('net.py:Net', 'nets.small:Net', 'lenet5')
    """
    if not is_user_model(name):
        return name
    target, colon, attribute = name.rpartition(":")
    return f"{Path(target).name}:{attribute}" if colon and _is_path(target) else name


def load_user_model(name: str) -> UserModel:
    """Imports a user's own model.

    A file is executed once for each of its contents, so that a changed file is another model. Its
    folder is searched for the modules that it imports, after all other folders.

    Raises:
      InputError: there is no such file, module or attribute, or importing it raises.
    """
    target, _, attribute = name.rpartition(":")
    if not target or not attribute.isidentifier():
        raise InputError(
            f"model {name!r}: give the class or the function after a colon, as in "
            f"{(target or attribute).removesuffix(':')}:Network"
        )
    if _is_path(target):
        loaded = _load_file(name, Path(target).expanduser().resolve())
        name = f"{loaded.file}:{attribute}"
    else:
        loaded = _load_module(name, target)
    if not hasattr(loaded.module, attribute):
        raise InputError(
            f"model {label(name)}: {loaded.file} has no {attribute!r}; {_choices(loaded.module)}"
        )
    return UserModel(
        name=name,
        label=label(name),
        file=loaded.file,
        digest=loaded.digest,
        folder=loaded.folder,
        factory=getattr(loaded.module, attribute),
    )


def check_digest(name: str, digest: str) -> None:
    """Checks that a user's model is still the one with this digest.

    Raises:
      InputError: its file has changed.
    """
    if load_user_model(name).digest != digest:
        raise InputError(
            f"model {label(name)}: its file has changed since the study began; run the command "
            "again"
        )


def _is_path(target: str) -> bool:
    return target.endswith(".py") or target.startswith("~") or "/" in target or os.sep in target


def _load_file(name: str, path: Path) -> _Loaded:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"model {name!r}: cannot read {path} ({error.strerror})") from error
    return _Loaded(_execute(path, source), path, path.parent, _digest(source))


@functools.lru_cache(maxsize=16)
def _execute(path: Path, source: bytes) -> ModuleType:
    """The module of a file's content."""
    try:
        code = compile(source, path, "exec")
    except SyntaxError as error:
        raise syntax_error(path.name, error) from error
    except ValueError as error:  # null bytes
        raise InputError(f"model {path.name}: {path} is not Python ({error})") from error
    module = ModuleType(f"user_model_{path.stem}_{_digest(source)}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look for their module there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    with user_code_errors(f"model {path.name}: importing it", path.parent):
        exec(code, vars(module))
    return module


@functools.lru_cache(maxsize=16)
def _load_module(name: str, target: str) -> _Loaded:
    """A module that is found as `import` finds it, which runs it once in a process."""
    importlib.invalidate_caches()
    try:
        top = importlib.util.find_spec(target.partition(".")[0])
    except ValueError:  # `__main__` has no specification
        top = None
    if top is None:
        raise _no_module(name, target)
    folders = top.submodule_search_locations  # of a package
    folder = Path(folders[0]) if folders else Path(top.origin or "").parent
    try:
        with user_code_errors(f"model {name}: importing it", folder):
            module = importlib.import_module(target)
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, SyntaxError):
            raise syntax_error(name, cause) from error
        if isinstance(cause, ModuleNotFoundError) and f"{target}.".startswith(f"{cause.name}."):
            raise _no_module(name, target) from error
        raise
    if not (place := getattr(module, "__file__", None)):  # as of a built-in module
        raise InputError(f"model {name!r}: the module {target!r} has no file")
    file = Path(place)
    return _Loaded(module, file, folder, _digest(file.read_bytes()))


def _no_module(name: str, target: str) -> InputError:
    return InputError(
        f"model {name!r}: there is no model {name.partition(':')[0]!r} (see `python -m "
        f"experiments.run --list`), and no module {target!r}: run the command in the folder that "
        "contains it, or give its file, as in ./file.py:Network"
    )


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


def _choices(module: ModuleType) -> str:
    """The classes and functions that a module defines, in words."""
    names = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    return f"it defines {', '.join(names)}" if names else "it defines no class and no function"
