"""Prices of accelerators: from an option, a file, and the device table."""

import re

import pytest

from experiments.hardware import find
from experiments.hardware.prices import find_price, parse_price, price_of, read_prices
from jaxcnn.errors import InputError


def write_toml(folder, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "price"), [("2.5/h", 2.5), ("$0.35/h", 0.35), (" $ 3 / h ", 3.0), ("1e-3/h", 0.001)]
)
def test_parse_price_in_dollars_per_hour(text, price):
    assert parse_price(text) == price


@pytest.mark.parametrize(
    "text",
    [
        "2.5",
        "",
        "/h",
        "2.5/min",
        "nan/h",
        "inf/h",
        "-1/h",
        "0/h",
        "$$1/h",
        "two/h",
        "2,5/h",
        "€2/h",
    ],
)
def test_parse_price_rejects_what_is_not_a_price(text):
    with pytest.raises(InputError, match=re.escape(f"--price={text}: ")) as raised:
        parse_price(text)
    assert "--price=2.5/h" in str(raised.value)


def test_read_prices(tmp_path):
    path = write_toml(tmp_path, '# spot\n"Tesla T4" = 0.11\n"TPU v5e" = 0.6\nmine = 1\n')
    assert read_prices(path, extra_names=["Mine"]) == {
        "Tesla T4": 0.11,
        "TPU v5e": 0.6,
        "mine": 1.0,
    }


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('"Tesla T4" = 0.35\nT44 = 2\n', 2, "unknown device 'T44': did you mean 'T4'?"),
        (
            '"Tesla T4" = 0.35\n"T4" = "2.5/h"\n',
            2,
            "the price of 'T4' must be a positive number of dollars per hour, not '2.5/h'",
        ),
        ("\nT4 = -1\n", 2, "not -1"),
        ("T4 = nan\n", 1, "not nan"),
        ("T4 = true\n", 1, "not True"),
        ("T4 = 0.35\nL4 : 0.5\n", 2, "not TOML"),
        ("T4 = 0.35\nT4 = 0.5\n", 2, "not TOML"),
        ("T4 = 0.35\nL4 =", 2, "not TOML"),
        ("[prices]\nT4 = 0.35\n", 1, "unknown device 'prices'"),
        ("T4 = [0.35,\n 1", 2, "not TOML"),
    ],
)
def test_a_mistake_in_a_price_file_is_reported_with_its_line(tmp_path, text, line, message):
    path = write_toml(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(f"{path}, line {line}: ")) as raised:
        read_prices(path)
    assert message in str(raised.value)


def test_price_of_prefers_the_option_then_the_file_then_the_table():
    t4 = find("Tesla T4", "gpu")
    assert price_of(t4, "Tesla T4", {"tesla t4": 0.2}, 0.1) == (0.1, "--price")
    assert price_of(t4, "Tesla T4", {"tesla t4": 0.2, "T4": 0.3}) == (0.2, "--prices")
    assert price_of(t4, "Tesla T4", {"T4": 0.3}) == (0.3, "--prices")
    price, label = price_of(t4, "Tesla T4", {"L4": 1.0})
    assert price == 0.35
    assert "2026-11-21" in label and "Google Cloud" in label
    assert price_of(find("Tesla P40", "gpu"), "Tesla P40") == (None, "")
    assert price_of(None, "cpu", {"cpu": 0.05}) == (0.05, "--prices")
    assert price_of(None, "cpu") == (None, "")


def test_a_file_that_was_checked_may_have_names_of_the_machine_that_it_was_checked_on(tmp_path):
    path = write_toml(tmp_path, '"My CPU" = 0.36\n"T4" = 0.11\n')
    options = {"price": None, "prices": path, "devices": None}
    t4 = find("Tesla T4", "gpu")
    assert find_price(None, ("cpu", "My CPU"), **options) == (0.36, "--prices")
    with pytest.raises(InputError, match="line 1: unknown device 'My CPU'"):
        find_price(t4, ("Tesla T4",), **options)
    assert find_price(t4, ("Tesla T4",), **options, is_checked=True) == (0.11, "--prices")
    assert find_price(t4, ("Tesla T4",), **options | {"price": "2/h"}, is_checked=True)[0] == 2
