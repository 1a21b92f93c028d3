"""A network's table: its sums are the published totals; bad input gets one line."""

import re

import pytest

from experiments import summary


def printed(capsys, *arguments: str) -> str:
    assert summary.main([*arguments]) == 0
    return capsys.readouterr().out


def test_lenet5_line_by_line(capsys):
    """Worked out by hand: 5·5·1·6 + 6 = 156 and 2·28·28·25·6 = 235,200, and so on."""
    lines = [line for line in printed(capsys, "--model=lenet5").splitlines() if re.search(r"│ (conv|dense)", line)]
    columns = [line.strip(" │┃").split("│") for line in lines]
    held, mflop = [int(column[-2].replace(",", "")) for column in columns], [float(column[-1]) for column in columns]
    assert held == [156, 2_416, 48_120, 10_164, 850]
    assert mflop == [0.235, 0.480, 0.096, 0.020, 0.002]


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--model=cats_vs_dogs"], ["parameters 21,463,713: 21,455,521 trainable, 8,192 not"]),
        (["--model=darknet19"], ["256×256×3", "20,842,376 trainable, 14,400 not; forward 7.2907 GFLOP"]),
        (["--model=mlp:4096"], ["parameters 20,037,642"]),
        (["--model=lenet_like", "--num-classes=2"], [f"parameters {81_194 - 8 * 85:,}"]),
        (["--model=darknet19", "--image-size=128"], ["128×128×3", "forward 1.8227 GFLOP"]),
    ],
)
def test_totals(arguments, texts, capsys):
    output = printed(capsys, *arguments)
    assert all(text in output for text in texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=darknet18"], "unknown model 'darknet18': did you mean 'darknet19'"),
        (["--image-size=0"], "--image-size=0: must be 1 or more"),
        (["--num-classes=-3"], "--num-classes=-3: must be 1 or more"),
        (["--model=lenet5", "--image-size=8"], "model 'lenet5' cannot take images of 8×8"),
        (["--model=mlp:0"], "a width from 1 to 999999"),
    ],
)
def test_bad_input(arguments, message, capsys):
    assert summary.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
