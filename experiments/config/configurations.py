"""From the command line and a ``--config`` file to the configurations of a run.

An option that is marked `SEVERAL` may be a list; each combination of values is a configuration. The
values of a file are parsed as those of the command line are, which take precedence, also over
options of the file that exclude them.
"""

import dataclasses
import hashlib
import itertools
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from etils import epath

from experiments.cli import (
    Kind,
    flatten,
    given_options,
    option_name,
    parse_lists,
    parse_value,
    split_list,
)
from experiments.config.options import RunOptions
from experiments.config.run_config import RunConfig
from experiments.hardware import tomlfile
from experiments.hardware.tomlfile import TomlFile
from jaxcnn.errors import InputError, require_known

PROGRAM = "experiments.run"
FIELDS = {each.name: each for each in dataclasses.fields(RunConfig) if each.name != "config_digest"}
LISTS = tuple(name for name, each in FIELDS.items() if "several" in each.metadata)
EXCLUSIVE = (("seed", "seeds"), ("price", "prices"))  # options of which one may be given
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}


@dataclass(frozen=True)
class FileOptions:
    """The options of a ``--config`` file.

    Attributes:
      file: None if there is none.
      values: those of each option, by name and in the file's order.
      digest: of the file.
    """

    file: TomlFile | None = None
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    digest: str | None = None

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """The values of the options that may be lists."""
        return {name: values for name, values in self.values.items() if name in LISTS}

    @property
    def defaults(self) -> RunOptions | None:
        """All options, each with its first value in the file; None without a file."""
        if self.file is None:
            return None
        groups: dict[str, Any] = {each.name: each.type for each in dataclasses.fields(RunOptions)}
        for name, group in groups.items():
            names = {each.name for each in dataclasses.fields(group)} & self.values.keys()
            groups[name] = group(**{each: self.values[each][0] for each in names})
        return RunOptions(**groups)

    def overridden(self, given: Collection[str]) -> "FileOptions":
        """Without those that an option of the command line excludes.

        Args:
          given: names of options on the command line, `EXCLUSIVE` ones at least.
        """
        excluded = {
            other for pair in EXCLUSIVE for name, other in (pair, pair[::-1]) if name in given
        }
        values = {name: each for name, each in self.values.items() if name not in excluded}
        return dataclasses.replace(self, values=values)

    def locate(self, error: InputError) -> InputError:
        """The error of a configuration, with the line of the file if a value there causes it."""
        for key in self.file.data if self.file else ():
            name = key.replace("-", "_")
            for value in self.values.get(name, ()):
                try:
                    RunConfig(**{name: value})
                except InputError as cause:
                    if str(cause) == str(error):
                        return self.file.error(str(error), key)
        return error


def parse(arguments: Sequence[str] | None = None) -> tuple[RunConfig, ...]:
    """Parses the command line of `experiments.run`, and the file of its ``--config``.

    Args:
      arguments: the command line; that of this process if None.

    Returns:
      A configuration for each combination of the listed values. The list that was given first
      varies slowest; those of the file come before those of the command line.

    Raises:
      InputError: an unknown option or a value that is not allowed, on the command line or in the
        file.

    >>> [(c.model, c.batch_size) for c in parse(["--model=mlp,lenet5", "--batch-size=32,64"])]
    [('mlp', 32), ('mlp', 64), ('lenet5', 32), ('lenet5', 64)]
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    file_option = given_options(arguments, ("config",))
    file = read_file(file_option["config"][1]) if file_option else FileOptions()
    file = file.overridden(given_options(arguments, tuple(itertools.chain(*EXCLUSIVE))))
    options, lists = parse_lists(RunOptions, PROGRAM, arguments, LISTS, file.defaults)
    lists = {name: file.lists[name] for name in file.lists if name not in lists} | lists
    flat = flatten(options) | {"config_digest": file.digest}
    if flat["seeds"] is not None:
        lists["seed"] = _seeds(flat.pop("seeds"), lists)
    combinations = itertools.product(*lists.values())
    try:
        configs = [RunConfig(**flat | dict(zip(lists, each, strict=True))) for each in combinations]
    except InputError as error:
        raise file.locate(error) from None
    return tuple(dict.fromkeys(configs))


def _seeds(count: int, lists: dict[str, tuple[Any, ...]]) -> tuple[int, ...]:
    """The seeds of --seeds."""
    if "seed" in lists:
        raise InputError("--seed and --seeds exclude each other: give one of them")
    RunConfig(seeds=count)  # checks the number
    return tuple(range(count))


def combination(config: RunConfig, configs: Sequence[RunConfig]) -> str:
    """The options in which a configuration differs from others, as on the command line.

    >>> configs = parse(["--model=mlp,lenet5", "--seed=3"])
    >>> combination(configs[1], configs)
    '--model=lenet5'
    """
    return " ".join(f"{option_name(name)}={getattr(config, name)}" for name in varied(configs))


def varied(configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """Names of the options that several configurations do not have in common."""
    return tuple(name for name in LISTS if len({getattr(each, name) for each in configs}) > 1)


def read_file(path: str) -> FileOptions:
    """Reads a TOML file of options.

    A key is the name of an option, with hyphens or underscores. A flag is true or false. A list has
    the values of an option that may be a list, or the parts of one value.

    Raises:
      InputError: the file cannot be read or is not TOML, an unknown option, or a value that is not
        allowed; the message names the file and the line.
    """
    file = tomlfile.read(path, "--config")
    values: dict[str, tuple[Any, ...]] = {}
    for key in file.data:
        name = key.replace("-", "_")
        try:
            require_known("option", name, FIELDS)
            if name == "config" or name in values:
                rule = "cannot name another file" if name == "config" else "is in the file twice"
                raise InputError(f"the option {name} {rule}")
            values[name] = tuple(dict.fromkeys(_read_values(key, file.data[key], FIELDS[name])))
        except InputError as error:
            raise file.error(str(error), key) from None
    digest = hashlib.sha256(epath.Path(path).expanduser().read_bytes()).hexdigest()[:16]
    return FileOptions(file, values, digest)


def _read_values(key: str, value: Any, option: dataclasses.Field) -> Iterator[Any]:
    """The values of an option in a file, parsed as on the command line.

    Raises:
      InputError: a value that is not allowed.
    """
    kind = Kind.of(option)
    words = _words(option, kind)
    entry = f"{key} = {json.dumps(value, default=str, ensure_ascii=False)}"
    for parts in _split(option, kind, value):
        if not parts or not all(_admits(kind, part) for part in parts):
            raise InputError(f"{entry}: must be {words}")
        try:
            texts = [str(part) for part in parts]
            is_flag = kind.type is bool
            yield parts[0] if is_flag else parse_value(RunOptions, PROGRAM, option.name, texts)
        except InputError:
            raise InputError(f"{entry}: must be {words}") from None


def _split(option: dataclasses.Field, kind: Kind, value: Any) -> list[list[Any]]:
    """The parts of each value: several for a tuple, else one."""
    items = value if isinstance(value, list) else [value]
    if kind.is_tuple:
        return [items]
    if "several" in option.metadata:
        items = split_list(option.name, value) if isinstance(value, str) else items
        return [[item] for item in items] or [[]]
    if "joined" in option.metadata and items and all(isinstance(item, str) for item in items):
        return [[",".join(items)]]
    return [[value]]


def _words(option: dataclasses.Field, kind: Kind) -> str:
    """What an option may be in a file, for messages."""
    if kind.choices:
        return " or ".join(json.dumps(choice) for choice in kind.choices)
    may_be_list = kind.is_tuple or {"several", "joined"} & option.metadata.keys()
    return _WORDS[kind.type] + (", or a list of them" if may_be_list else "")


def _admits(kind: Kind, part: Any) -> bool:
    """Whether a value of TOML has the type; a whole number is also a number."""
    if isinstance(part, bool):
        return kind.type is bool
    return isinstance(part, (float, int) if kind.type is float else kind.type)
