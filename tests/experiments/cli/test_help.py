"""``--help`` of every command: words of the user, not of the parser; colors as rich has them."""

import re

import pytest

from experiments.__main__ import COMMANDS, main
from experiments.cli import all_fields, run_command
from experiments.config.options import RunOptions

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")


@pytest.fixture
def help_of(capsys, monkeypatch):
    """A function that returns the help of a command in an environment."""

    def run(command: str, **environment: str) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in ({"TERM": "xterm"} | environment).items():
            monkeypatch.setenv(name, value)
        try:
            assert main([command, "--help"]) == 0
        except SystemExit as end:
            assert not end.code
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_types_of_the_parser(command, help_of):
    text = help_of(command)
    assert text.startswith("usage: ") and "{None}" not in text and "default: None" not in text
    assert not re.search(r"\[(STR|INT|FLOAT) ", text) and "\x1b" not in text


def test_options_of_a_run_are_under_headings_with_their_defaults(help_of):
    text = help_of("run")
    headings = re.findall(r"─ (\S+) options ─", text)
    groups = ["device-and-study", "distributed-run", "model-and-data"]
    assert headings == [*groups, "training", "measuring", "output"]
    data, training = text.index("model-and-data options"), text.index("training options")
    assert data < text.index("--dataset STR") < training < text.index("--batch-size INT")
    assert "(default: lenet5)" in text and "(default: 0.95)" in text
    for field in all_fields(RunOptions):
        assert f"--{field.name.replace('_', '-')}" in text


def test_options_of_the_preflight_are_under_headings(help_of):
    text = help_of("preflight")
    headings = re.findall(r"─ (\S+) options ─", text)
    assert headings == ["target", "network", "train-step", "compiling", "output"]
    assert text.index("network options") < text.index("--model STR") < text.index("--precision")


@pytest.mark.parametrize("command", COMMANDS)
def test_colors_are_those_that_the_environment_allows(command, help_of):
    plain = help_of(command)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb", "FORCE_COLOR": "1"}):
        assert help_of(command, **environment) == plain
    assert not COLOUR.search(help_of(command, NO_COLOR="1", FORCE_COLOR="1"))
    if command != "info":  # of argparse
        colored = help_of(command, FORCE_COLOR="1")
        assert COLOUR.search(colored)
        assert re.sub(r"\x1b\[[\d;]*m", "", colored).split() == plain.split()


@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_the_output_of_commands_is_colored_likewise(variables, is_colored, capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    run_command(lambda console: console.print("[bold red]failed[/] after 5 s") or 0)
    output = capsys.readouterr().out
    assert "failed" in output and bool(COLOUR.search(output)) == is_colored
