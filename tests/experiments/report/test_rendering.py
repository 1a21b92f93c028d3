"""The page as PDF and PNG."""

import io

import pytest
from PIL import Image

from experiments.report import __main__ as command
from experiments.report import rendering
from tests.experiments.report.test_page_in_browser import CHROMIUM


@pytest.mark.parametrize("suffix", [".pdf", ".png"])
def test_without_a_browser_one_line_says_what_is_missing(tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.setattr(rendering.shutil, "which", lambda name: None)
    out = tmp_path / f"report{suffix}"
    (tmp_path / "results").mkdir()
    assert command.main([f"--results={tmp_path / 'results'}", f"--out={out}"]) == 2
    error = capsys.readouterr().err
    assert f"--out={out}: needs Chromium or Chrome" in error and ".html" in error
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, such as Debian's package chromium")
def test_the_image_has_the_height_of_the_page_and_the_pdf_its_text(tmp_path):
    html = "<html data-height='1500'><body style='height: 1500px'>text of the page</body></html>"
    html = html.replace("'", '"')
    image = Image.open(io.BytesIO(rendering.render(html, ".png", "--out=a.png")))
    assert image.size == (rendering.SCALE * rendering.WIDTH, rendering.SCALE * 1500)
    assert rendering.render(html, ".pdf", "--out=a.pdf").startswith(b"%PDF-")
