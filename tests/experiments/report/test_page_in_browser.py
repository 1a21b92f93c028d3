"""The page in a real browser: every figure is drawn, nothing is fetched, no hostile text is run.

Skipped without Chromium.
"""

import csv
import shutil

import pytest

from experiments import records, report
from experiments.records import Record
from tests.support import four_accelerators

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium, such as Debian's package chromium"
)

SAMPLES = {
    "loss": [2.0, 1.0],
    "twin_loss": [2.0, 1.0],
    "projection": [1.0],
    "twin_projection": [1.0],
    "norm": [1.0],
}
GRID = {
    "grid_weight": [0.0, 1.0],
    "grid_bias": [0.0, 1.0],
    "grid_cost": [1.0, 2.0, 3.0, 4.0],
    "path_weight": [1.0, 0.0],
    "path_bias": [1.0, 0.0],
}
HOSTILE = "=1+1<img src=x onerror=document.title='run'>"
EPOCHS = [
    {
        "epoch": e,
        "seconds": float(e),
        "validation_accuracy": 0.5 + e / 10,
        "train_loss": 1 / e,
        "validation_loss": 2 / e,
    }
    for e in (1, 2, 3)
]
METRICS = {
    "step_time": 0.01,
    "images_per_second": 3200.0,
    "parameters": 100.0,
    "training_time": 1.0,
    "setup_and_training_time": 2.0,
    "test_accuracy": 0.9,
    "latency_p50": 0.001,
    "latency_p90": 0.002,
    "latency_p99": 0.003,
    "arithmetic_intensity": 10.0,
    "flops_per_second": 1e9,
    "peak_measured": 1e11,
    "bandwidth_measured": 1e10,
    "roofline_share": 0.5,
    "memory_planned": 1e6,
    "copy_time": 0.1,
    "compile_time": 1.0,
    "excess_loss": 0.1,
    "steps": 10,
    "epochs": 3,
}
USE = {
    "series": [
        {"name": "cpu", "unit": "%", "source": "psutil", "times": [0.0, 1.0], "values": [1.0, 99.0]}
    ],
    "means": {"training": {"cpu": 50.0}},
}
STUDIES = (
    "train",
    "kernels",
    "batch_sweep",
    "width_sweep",
    "inference",
    "search",
    "descent",
    "parity",
    "precision",
)


def make_record(study: str, accelerator: str, platform: str) -> Record:
    settings = {
        "model": HOSTILE if study == "train" else "lenet5",
        "batch_size": 32,
        "precision": "float32",
        "point": "a",
        "strategy": "jit",
    }
    provenance = {
        "accelerator": accelerator,
        "machine": accelerator,
        "platform": platform,
        "time": "2026-11-01",
    }
    return Record(
        study,
        f"{study}-{accelerator}",
        "ok",
        settings=settings,
        metrics=METRICS,
        samples=SAMPLES | GRID,
        curves=EPOCHS,
        utilisation=USE,
        provenance=provenance | {"examples": {"test": 100}},
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for study in STUDIES:
        for accelerator, platform in (("Host", "cpu"), ("Faster", "gpu")):
            records.write(make_record(study, accelerator, platform), folder)
    return report.write_page([folder], folder / "report.html")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(
    params=[("light", 1200), ("dark", 1200), ("light", 390)], ids=["light", "dark", "phone"]
)
def tab_and_events(request, browser, page):
    """A tab with the page, its messages and errors, and the addresses it fetched."""
    scheme, width = request.param
    tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    messages, fetched = [], []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: fetched.append(request.url))
    open_all(tab, page)
    yield tab, messages, fetched
    tab.close()


def open_all(tab, page):
    """Opens the page and all its sections."""
    tab.goto(f"file://{page}")
    tab.locator("#open").click()
    tab.wait_for_function(
        "document.querySelectorAll('.plot .main-svg').length"
        " >= document.querySelectorAll('.plot').length"
    )


def test_every_figure_is_drawn_and_nothing_is_fetched_or_run(tab_and_events, page):
    tab, messages, fetched = tab_and_events
    assert messages == []
    assert fetched == [f"file://{page}"]
    assert tab.title() != "run"
    count = tab.locator(".plot").count()
    assert count >= 14
    trace_counts = tab.evaluate(
        "[...document.querySelectorAll('.plot')].map(plot =>"
        " plot.querySelectorAll('.trace, .contour, .bars, .heatmaplayer').length)"
    )
    assert len(trace_counts) == count and all(trace_counts), trace_counts


def test_the_page_is_no_wider_than_the_screen(tab_and_events):
    tab, *_ = tab_and_events
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_contrast_of_text_is_sufficient(tab_and_events):
    """At least 4.5 in text and figures (Web Content Accessibility Guidelines 2.1, 1.4.3)."""
    tab, *_ = tab_and_events
    colors = tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        " getComputedStyle(document.querySelector('.plot .xtick text')).fill]"
    )
    background, *inks = (_luminance(color) for color in colors)
    for ink in inks:
        assert (max(background, ink) + 0.05) / (min(background, ink) + 0.05) >= 4.5, colors


def _luminance(color: str) -> float:
    """Relative luminance of ``rgb(r, g, b)``."""
    parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_hovering_shows_the_record_and_the_legend_hides_a_trace(browser, page):
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    tab.goto(f"file://{page}#curves")  # the link opens its section
    plot = tab.locator("#curves .plot").first
    plot.scroll_into_view_if_needed()
    tab.wait_for_selector("#curves .plot .scatterlayer .point")
    box = plot.locator(".scatterlayer .point").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_selector("#curves .hovertext")
    assert "2026-11-" in plot.locator(".hovertext").first.text_content()
    before = plot.locator(".scatterlayer .trace").count()
    tab.mouse.move(0, 0)
    tab.locator("#curves .legend button").first.click()
    tab.wait_for_function(
        "n => document.querySelector('#curves .plot')"
        ".querySelectorAll('.scatterlayer .trace').length < n",
        arg=before,
    )
    tab.close()


def test_the_data_of_a_figure_are_downloaded_as_csv(browser, page, tmp_path):
    tab = browser.new_page(accept_downloads=True)
    tab.goto(f"file://{page}#curves")
    with tab.expect_download() as pending:
        tab.locator("#curves button[data-csv]").first.click()
    pending.value.save_as(tmp_path / "data.csv")
    with (tmp_path / "data.csv").open(newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["line", "training time in s", "accuracy", "record"]
    assert [(x, y) for name, x, y, _ in rows if name.startswith("Host")] == [
        ("1", "0.6"),
        ("2", "0.7"),
        ("3", "0.8"),
    ] * 2
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    tab.close()


@pytest.fixture(scope="module")
def four_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    for record in four_accelerators.records():
        records.write(record, folder)
    return report.write_page([folder], folder / "report.html")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answers_are_above_the_fold_and_all_else_is_folded(browser, four_page, scheme, width):
    tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 844})
    tab.goto(f"file://{four_page}")
    answers = tab.locator(".tile .answer")
    assert answers.all_text_contents() == [
        "NVIDIA H100 80GB HBM3 (synthetic)",
        "TPU v5 lite (synthetic)",
        "32,000 parameters",
    ]
    for index in range(3):
        box = answers.nth(index).bounding_box()
        assert box["y"] + box["height"] <= 844 and box["x"] + box["width"] <= width
    assert tab.locator("details[open]").count() == 0
    # All columns of the table are on a wide screen; on a narrow one the first stays in sight.
    wide = tab.locator("#accelerators .wide")
    overflow = wide.evaluate("box => box.scrollWidth - box.clientWidth")
    assert overflow == 0 if width == 1280 else overflow > 0
    wide.evaluate("box => box.scrollLeft = 1000")
    first = tab.locator("#accelerators tbody td").first.bounding_box()
    assert first["x"] == pytest.approx(wide.bounding_box()["x"], abs=1)
    tab.close()


def test_long_names_in_the_legend_do_not_cover_the_axis(browser, four_page):
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    open_all(tab, four_page)
    overlaps = tab.evaluate(
        "[...document.querySelectorAll('.legend')].filter(legend => {"
        " const axis = legend.previousElementSibling.querySelector('.xtitle');"
        " return axis && axis.getBoundingClientRect().bottom"
        " > legend.getBoundingClientRect().top + 1; }).length"
    )
    assert overlaps == 0
    tab.close()
