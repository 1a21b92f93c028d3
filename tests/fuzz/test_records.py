"""Records that were changed at random: read by every command, or named and left out."""

import copy
import json
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import compare, export, records
from experiments.records.published import PUBLISHED
from experiments.records.schema import validate
from experiments.report import __main__ as report
from tests.support import attacks
from tests.support.training_record import training_record

HOSTILE = (
    None,
    True,
    -1,
    0,
    10**400,
    -(10**30),
    1e308,
    "",
    "\x1b[31mred",
    "\ud800",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "[red]a[/]",
    "x" * 100_000,
    [],
    {},
    [[[[[[]]]]]],
    {"a": {"b": {"c": []}}},
    [1, "a", None],
    {"\u202e": 1},
)


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def places(value, path=()):
    """The path of every value inside JSON."""
    yield path
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


def changed(entry, path, value):
    entry = copy.deepcopy(entry)
    if not path:
        return value
    target = entry
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return entry


def originals() -> list[dict]:
    """A record of each study that has published ones, and one with something in every field."""
    loaded, _ = records.load([PUBLISHED])
    by_study = {record.study: record for record in loaded if not record.curves[50:]}
    return [records.to_json(r) for r in (*by_study.values(), training_record())]


def write(folder, entry) -> None:
    (folder / "train").mkdir(parents=True, exist_ok=True)
    (folder / "train" / "case.json").write_text(json.dumps(entry))


@pytest.mark.filterwarnings("ignore")
def test_every_command_with_changed_records(tmp_path, capsys):
    good = tmp_path / "good"
    write(good, records.to_json(training_record()))
    rng, outcomes, failures = random.Random(1), Counter(), []
    for _ in range(attacks.number(15, 1000)):
        entry = rng.choice(originals())
        path = rng.choice([*places(entry)])
        entry = changed(entry, path, rng.choice([*HOSTILE, nested(rng.choice((50, 900)))]))
        write(tmp_path / "bad", entry)
        for main, arguments in (
            (compare.main, [f"{good}", f"{tmp_path}/bad"]),
            (export.main, [f"{good}", f"{tmp_path}/bad", f"--out={tmp_path}/x.csv"]),
            (report.main, ["--results", f"{good}", f"{tmp_path}/bad", f"--out={tmp_path}/r.html"]),
        ):
            code = main(arguments)
            captured = capsys.readouterr()
            outcomes[f"exit code {code}"] += 1
            if code not in (0, 2, 3) or "\x1b" in captured.out + captured.err:
                failures.append((main.__module__, path, captured.err[-300:]))
    attacks.report(capsys, "changed records", outcomes)
    assert failures == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@settings(
    max_examples=attacks.number(100, 3000),
    derandomize=not attacks.ALL,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(entry=JSON, field=st.sampled_from([*records.to_json(training_record())]))
def test_a_field_of_any_json_is_read_or_refused(entry, field):
    whole = records.to_json(training_record()) | {field: entry}
    try:
        record = records.from_json(whole)
    except ValueError:
        return
    json.dumps(records.to_json(record), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("metrics", "step_time"), 10**400, "an integer of more than 64 bits"),
        (("metrics", "step_time"), "fast", "Expected `float | null`, got `str`"),
        (("provenance", "accelerator"), 5, "Expected `str | null`, got `int`"),
        (("settings", "batch_size"), -1, "Expected `int` >= 0"),
        (("message",), "\ud800", "half of a surrogate pair"),
        (("dataset_summary",), {"a": nested(30)}, "nested more than 20 deep"),
        (("curves",), [{"epoch": [1]}], "Expected `float | null`, got `array`"),
        (("samples", "loss"), 3, "Expected `array`, got `int`"),
    ],
)
def test_what_is_refused_and_why(path, value, message):
    entry = changed(records.to_json(training_record()), path, value)
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        validate(entry)


def test_all_published_records_are_valid():
    paths = [*PUBLISHED.rglob("*.json")]
    assert paths
    for path in paths:
        content = json.loads(path.read_text())
        for entry in content if isinstance(content, list) else [content]:
            validate(entry)


def test_a_text_without_meaning_for_spreadsheets_and_terminals(tmp_path, capsys):
    record = training_record(
        settings={"model": "=1+1", "batch_size": 1, "note": "\x1b[31mred\x07"},
        provenance={"accelerator": "@A", "time": "2026-01-01"},
    )
    write(tmp_path / "results", records.to_json(record))
    out = tmp_path / "records.csv"
    assert export.main([f"{tmp_path}/results", f"--out={out}"]) == 0
    text = out.read_text()
    assert "'=1+1" in text and "'@A" in text and "\x1b" not in text and "\x07" not in text
