"""The comparison of FLOPs from three sources."""

import dataclasses

import pytest

from experiments.measure.flops_check import compare_flops


def test_sources_that_agree():
    check = compare_flops(jaxpr=1000, compiler=1150.0, closed_form=1000)
    assert (check.jaxpr, check.compiler, check.closed_form) == (1000, 1150.0, 1000)
    assert check.disagreement == ""
    with pytest.raises(dataclasses.FrozenInstanceError):
        check.disagreement = "none"
    assert compare_flops(jaxpr=1000).disagreement == ""
    assert compare_flops(jaxpr=0, compiler=0).disagreement == ""


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        (
            {"jaxpr": 1000, "closed_form": 999},
            ["closed form has 999 FLOP, 0.1 % less than the jaxpr's 1000"],
        ),
        (
            {"jaxpr": 1000, "compiler": 100},
            [
                "compiler counts 100 FLOP, 90 % less than the jaxpr's 1000",
                "the body of a loop once",
            ],
        ),
        (
            {"jaxpr": 1000, "compiler": 3000},
            ["compiler counts 3000 FLOP, 200 % more than the jaxpr's 1000", "elementwise"],
        ),
        ({"jaxpr": 1000, "compiler": 1150, "tolerance": 0.1}, ["15 % more"]),
        ({"jaxpr": 0, "compiler": 64}, ["compiler counts 64 FLOP, more than the jaxpr's 0"]),
        (
            {"jaxpr": 1000, "compiler": 1, "closed_form": 1},
            ["closed form has 1 FLOP", "; the compiler counts 1 FLOP"],
        ),
    ],
)
def test_a_disagreement_names_source_amount_and_reason(counts, parts):
    disagreement = compare_flops(**counts).disagreement
    assert all(part in disagreement for part in parts), disagreement
