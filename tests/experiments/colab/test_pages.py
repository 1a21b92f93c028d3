"""Showing the report, and what the records say as text."""

import json
import re
import urllib.error
import urllib.request

import pytest

from experiments import colab
from experiments.colab import pages

MEGABYTES = "<p>" + 3_000_000 * "x"


@pytest.fixture
def displayed(monkeypatch):
    """What cells display."""
    objects = []
    monkeypatch.setattr("IPython.display.display", objects.append)
    return objects


def test_jupyter_loads_the_page_from_the_folder_of_the_notebook(displayed, tmp_path):
    page = tmp_path / "results" / "my study" / "page.html"
    page.parent.mkdir(parents=True)
    page.write_text(MEGABYTES)
    colab.show_page(page, height=300)
    (frame,) = (each._repr_html_() for each in displayed)
    assert 'src="results/my%20study/page.html"' in frame and 'height="300"' in frame
    assert 'sandbox="allow-scripts allow-downloads"' in frame  # without allow-same-origin
    assert len(frame) < 1000


def test_colab_loads_the_page_from_the_notebooks_process(fake_colab, displayed, tmp_path):
    from google.colab import output

    page = tmp_path / "page.html"
    page.write_text(MEGABYTES)
    (tmp_path / "secret.txt").write_text("secret")
    colab.show_page(page, height=300)
    assert displayed == []
    ((port, options),) = output.served
    assert options == {"width": "100%", "height": "300"}
    for address in ("", "secret.txt", "../secret.txt"):  # one file, whatever the address
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{address}", timeout=10) as answer:
            assert answer.read().decode() == MEGABYTES
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page.write_text("<p>new")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10) as answer:
        assert answer.read() == b"<p>new"
    page.unlink()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10)


def test_without_a_frame_the_browser_downloads_the_page(
    fake_colab, displayed, tmp_path, monkeypatch, capsys
):
    from google.colab import output

    monkeypatch.delattr(output, "serve_kernel_port_as_iframe")
    (tmp_path / "page.html").write_text("<p>")
    colab.show_page(tmp_path / "page.html")
    assert (tmp_path / "downloaded").read_text() == str(tmp_path / "page.html")
    assert displayed == []
    assert "cannot be shown here" in capsys.readouterr().out


def write_record(folder, platform: str, rate: float) -> None:
    record = {
        "schema": 1,
        "study": "train",
        "case": platform,
        "status": "ok",
        "settings": {"model": "lenet5"},
        "metrics": {"images_per_second": rate, "test_accuracy": 0.9},
        "provenance": {
            "platform": platform,
            "accelerator": {"tpu": "TPU v5 lite", "cpu": "Xeon"}[platform],
            "machine": "12345678",
            "time": "2026-01-01T00:00:00Z",
        },
    }
    (folder / "train").mkdir(parents=True, exist_ok=True)
    (folder / "train" / f"{platform}.json").write_text(json.dumps(record))


def test_the_summary_ends_with_the_comparison_and_the_page_is_written(displayed, tmp_path, capsys):
    results = tmp_path / "results"
    write_record(results, "tpu", 52_000)
    write_record(results, "cpu", 3_250)
    colab.show_report([results], results / "report.html")
    assert "TPU v5 lite" in (results / "report.html").read_text()
    assert capsys.readouterr().out == f"report: {results / 'report.html'}\n"
    colab.print_summary([results])
    lines = capsys.readouterr().out.splitlines()
    assert "TPU v5 lite trained lenet5 to 90 % test accuracy." in lines
    assert lines[-1] == (
        "The TPU v5 lite trained 52,000 images/s, the CPU of the same machine 3,250: "
        "16 times as fast."
    )


def test_a_record_that_cannot_be_read_is_named(tmp_path, capsys):
    write_record(tmp_path, "cpu", 3_250)
    (tmp_path / "train" / "broken.json").write_text("{")
    colab.print_summary([tmp_path])
    assert re.search(r"train/broken\.json: left out", capsys.readouterr().out)


def test_a_page_that_cannot_be_written_stops_the_notebook(displayed, tmp_path):
    (tmp_path / "page").mkdir()
    with pytest.raises(colab.Stopped, match="that is a folder; choose a file"):
        pages.show_report([tmp_path], tmp_path / "page")
    assert displayed == []
