"""What is wrong with a command line, in one line."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import tyro

from experiments.cli import OptionalFloat, OptionalInt, mistakes, parse_options, unset
from jaxcnn.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Group:
    model: str = "lenet5"
    batch_size: OptionalInt = None
    rate: OptionalFloat = 0.5


@dataclass(frozen=True, kw_only=True)
class Options:
    baseline: tyro.conf.Positional[str]
    group: Group
    preset: Literal["quick", "full"] = "quick"
    stages: Annotated[tuple[float, ...] | None, unset("FLOAT …")] = None
    force: bool = False


@dataclass(frozen=True)
class Required:
    """An option that has to be given, and any number of arguments."""

    images: tyro.conf.Positional[tuple[str, ...]]
    weights: str


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle=x"], "unknown option --modle: did you mean --model? prog --help shows all"),
        (["--MODEL", "x"], "unknown option --MODEL: did you mean --model? prog --help shows all"),
        (["-model=x"], "unknown option -model: did you mean --model? prog --help shows all"),
        (["--colour=x"], "unknown option --colour: prog --help shows all"),
        (["--no-force"], "unknown option --no-force: did you mean --force? prog --help shows all"),
        (["-x"], "unknown option -x: prog --help shows all"),
        (["--batch-size=abc"], "--batch-size=abc: expected a whole number"),
        (["--batch_size", "1.5"], "--batch-size=1.5: expected a whole number"),
        (["--batch-size="], "--batch-size=: expected a whole number"),
        (["--rate=fast"], "--rate=fast: expected a number"),
        (["--preset=slow"], "--preset=slow: expected quick or full"),
        (["--preset=None"], "--preset=None: expected quick or full"),
        (["--stages", "1", "a"], "--stages=a: expected numbers, separated by spaces"),
        (["--stages=1,2"], "--stages=1,2: expected numbers, separated by spaces"),
        (["--force=yes"], "--force=yes: expected no value; give --force"),
        (["--batch-size"], "--batch-size: expected a whole number, as in --batch-size=VALUE"),
        (["--batch-size", "--force"], "--batch-size: expected a whole number, as in "),
        (["--force", "True"], "unexpected argument 'True': values of options are written --name"),
        (["--rate=" + "9x" * 90], "--rate=" + "9x" * 40 + "…: expected a number"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(arguments, message):
    with pytest.raises(InputError) as error:
        mistakes.check(Options, ["results", *arguments], "prog")
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        (Options, [], "BASELINE must be given; prog --help says what that is"),
        (Required, ["a.png"], "--weights must be given; prog --help says what that is"),
    ],
)
def test_what_has_to_be_given_is_named(options, arguments, message):
    with pytest.raises(InputError) as error:
        mistakes.check(options, arguments, "prog")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("arguments", "model", "batch_size", "rate", "stages"),
    [
        ([], "lenet5", None, 0.5, None),
        (["--model", "mlp", "--batch_size", "8"], "mlp", 8, 0.5, None),
        (["--batch-size=x", "--batch-size=8"], "lenet5", 8, 0.5, None),  # the last one counts
        (["--rate", "-1e3"], "lenet5", None, -1000.0, None),
        (["--rate=None", "--batch-size=None"], "lenet5", None, None, None),
        (["--stages", "1", "0.1", "--model="], "", None, 0.5, (1.0, 0.1)),
    ],
)
def test_what_passes_is_what_the_parser_accepts(arguments, model, batch_size, rate, stages):
    parsed = parse_options(Options, "prog", ["results", *arguments])
    assert parsed.group == Group(model=model, batch_size=batch_size, rate=rate)
    assert (parsed.baseline, parsed.stages) == ("results", stages)


def test_with_defaults_flags_can_be_taken_back_and_nothing_is_required():
    defaults = Options(baseline="a", group=Group(), force=True)
    assert not parse_options(Options, "prog", ["--no-force"], defaults).force
    with pytest.raises(InputError, match="unknown option --no-model"):
        parse_options(Options, "prog", ["--no-model"], defaults)
