"""What every command of this package shares: parsing of options, errors to exit codes."""

from experiments.cli.option_types import (
    Kind,
    OptionalFloat,
    OptionalInt,
    OptionalStr,
    all_fields,
    option_name,
    unset,
)
from experiments.cli.outcome import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    OK,
    WORSE,
    console,
    print_start,
    run_command,
)
from experiments.cli.parsing import (
    flatten,
    given_options,
    parse_lists,
    parse_options,
    parse_value,
    split_list,
)
from experiments.cli.program_name import program_name

__all__ = [
    "BAD_INPUT",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "WORSE",
    "Kind",
    "OptionalFloat",
    "OptionalInt",
    "OptionalStr",
    "all_fields",
    "console",
    "flatten",
    "given_options",
    "option_name",
    "parse_lists",
    "parse_options",
    "parse_value",
    "print_start",
    "program_name",
    "run_command",
    "split_list",
    "unset",
]
