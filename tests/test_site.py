"""The site of the documentation: it is built strictly, and its reference has the public names."""

import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
PACKAGES = ("training", "parallel", "data", "models", "weights", "ops", "quantize", "detection")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="needs pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="needs pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={folder}"],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def is_shown(package: str, public: str, module: str, shown: set[str]) -> bool:
    """A function or class has an entry by the name of its own file, or by that of its package.

    Where package and function have a file of that name, the entry would be that of the file.
    """
    is_file = (ROOT / "jaxcnn" / package / f"{public}.py").exists()
    return f"{module}.{public}" in shown or (not is_file and f"jaxcnn.{package}.{public}" in shown)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_reference_has_every_public_function_and_class(name, site):
    package = importlib.import_module(f"jaxcnn.{name}")
    text = (site / "reference" / name / "index.html").read_text()
    shown = set(re.findall(r'<h[2-6] id="([\w.]+)"', text))
    missing = [
        public
        for public in package.__all__
        if inspect.isclass(value := getattr(package, public)) or inspect.isfunction(value)
        if not is_shown(name, public, value.__module__, shown)
    ]
    assert missing == []


def test_blocks_of_code_are_blocks(site):
    text = (site / "preflight" / "index.html").read_text()
    assert "```" not in text and text.count('class="highlight"') >= 2
    assert 'class="mermaid"' in (site / "architecture" / "index.html").read_text()
