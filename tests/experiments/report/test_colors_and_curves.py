"""One color for each accelerator in every figure; curves by data set; what is cut off is said."""

import dataclasses

import pytest

from experiments.analysis.standings import standings
from experiments.report.page import COLORS, _page_records
from experiments.report.sections import SECTIONS
from tests.support import four_accelerators as four


@pytest.fixture(scope="module")
def page():
    return _page_records(four.records(), [])


def test_every_accelerator_has_one_color_in_all_figures(page):
    colors: dict[str, set[str]] = {name: set() for name in ("EPYC", "Tesla T4", "H100", "TPU v5")}
    for build in SECTIONS.values():
        section = build(page)
        for figure in section.figures if section else ():
            for trace in figure.traces:
                for name, used in colors.items():
                    if name in str(trace.get("name")) and "line" in trace:
                        used.add(trace["line"]["color"])
    assert all(len(used) == 1 for used in colors.values()), colors
    assert set.union(*colors.values()) == set(COLORS[:4])


def test_each_data_set_has_its_own_curves_and_time_is_logarithmic_over_a_wide_range(page):
    figures = SECTIONS["curves"](page).figures
    titles = [figure.title for figure in figures]
    assert [title.split(":")[0] for title in titles] == ["cifar10"] * 2 + ["mnist"] * 2
    times = [figure for figure in figures if "accuracy" in figure.title]
    assert all(figure.x.log for figure in times)  # 160 times as long on the slowest
    two = [r for r in page.records if r.provenance["platform"] in ("gpu", "tpu")]
    figures = SECTIONS["curves"](_page_records(two, [])).figures
    assert not any(figure.x.log for figure in figures if "accuracy" in figure.title)


def test_curves_without_times_are_drawn_by_epoch_alone(page):
    """As those of the published records of parity, whose times were wrong."""

    def without_times(record):
        curves = [{k: v for k, v in e.items() if k != "seconds"} for e in record.curves]
        return dataclasses.replace(record, curves=curves)

    trained = [r for r in page.records if r.curves and r.settings.get("dataset") == "mnist"]
    figures = SECTIONS["curves"](_page_records(trained, [])).figures
    over_time, by_epoch = [len(figure.traces) for figure in figures]
    assert by_epoch == 2 * over_time
    figures = SECTIONS["curves"](_page_records([without_times(trained[0]), *trained[1:]], []))
    assert [len(figure.traces) for figure in figures.figures] == [over_time - 1, by_epoch]
    (figure,) = SECTIONS["curves"](_page_records([*map(without_times, trained)], [])).figures
    assert figure.title.startswith("mnist: loss") and len(figure.traces) == by_epoch


def test_precisions_are_told_apart_in_the_roofline(page):
    traces = SECTIONS["roofline"](page).figures[0].traces
    trained = [trace for trace in traces if "train" in trace["name"]]
    symbols = {trace["name"].split(", ")[-1]: trace["marker"]["symbol"] for trace in trained}
    assert symbols == {"float32": "circle", "float16": "diamond", "bfloat16": "square"}
    assert {t["text"][-1] for t in traces if "text" in t} == {
        "float32, measured", "float16, measured", "bfloat16, measured",
    }  # fmt: skip


def test_the_prices_figure_has_the_measured_points_and_hollow_estimates(page):
    (figure,) = SECTIONS["prices"](page).figures
    points = {trace["name"]: trace for trace in figure.traces}
    tpu = points["TPU v5 lite (synthetic)"]
    assert tpu["y"] == [9_000.0] and tpu["x"] == [pytest.approx(0.6 / 3600 / 9_000 * 1e6)]
    estimate = points["tpu-v6e-1, bfloat16 (estimated)"]
    assert estimate["marker"]["symbol"] == "square-open"
    (rate,), bars = estimate["y"], estimate["error_y"]
    assert (rate - bars["arrayminus"][0], rate + bars["array"][0]) == pytest.approx((2e4, 5e4))
    (cost,), bars = estimate["x"], estimate["error_x"]
    dollars = 1.2 / 3600 * 1e6
    assert cost - bars["arrayminus"][0] == pytest.approx(dollars / 5e4)
    assert cost + bars["array"][0] == pytest.approx(dollars / 2e4)
    assert standings(page.records).fastest.metrics["images_per_second"] == 24_000.0


def test_a_cut_list_says_so():
    many = [r for r in four.records() if r.study == "train"]
    rows = []
    for index in range(20):
        record = many[0]
        settings = record.settings | {"model": f"net{index}"}
        rows.append(type(record)(**(vars(record) | {"settings": settings, "case": f"c{index}"})))
    note = SECTIONS["curves"](_page_records(rows, [])).figures[0].note
    assert note == "the newest 12 of 20 are shown"
