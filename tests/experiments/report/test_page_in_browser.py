"""The page in a real browser: every figure is drawn, nothing is fetched, no hostile text is run.

Skipped without Chromium.
"""

import csv
import shutil

import pytest

from experiments import records, report
from experiments.records import Record

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
    tab.goto(f"file://{page}")
    tab.wait_for_function(
        "document.querySelectorAll('.plot .main-svg').length"
        " >= document.querySelectorAll('.plot').length"
    )
    yield tab, messages, fetched
    tab.close()


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
    tab.goto(f"file://{page}")
    plot = tab.locator("#curves .plot").first
    plot.scroll_into_view_if_needed()
    tab.wait_for_selector("#curves .plot .scatterlayer .point")
    box = plot.locator(".scatterlayer .point").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_selector("#curves .hovertext")
    assert (
        "float32, batch 128 · 2026-11-21T" in plot.locator(".hovertext").first.text_content()
    )  # the oldest record, a published one
    before = plot.locator(".scatterlayer .trace").count()
    tab.mouse.move(0, 0)
    plot.locator(".legendtoggle").first.click(force=True)
    tab.wait_for_function(
        "n => document.querySelector('#curves .plot')"
        ".querySelectorAll('.scatterlayer .trace').length < n",
        arg=before,
    )
    tab.close()


def test_the_data_of_a_figure_are_downloaded_as_csv(browser, page, tmp_path):
    tab = browser.new_page(accept_downloads=True)
    tab.goto(f"file://{page}")
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
