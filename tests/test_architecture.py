"""Imports run one way."""

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# What each part may import of the project, besides itself and `jaxcnn.errors`.
ALLOWED = {
    "jaxcnn": set(),
    "jaxcnn.ops": set(),
    "jaxcnn.models": {"jaxcnn.ops"},
    "jaxcnn.data": set(),
    "jaxcnn.detection": set(),
    "jaxcnn.weights": set(),
    "jaxcnn.quantize": set(),
    "jaxcnn.training": set(),
    "jaxcnn.parallel": {"jaxcnn.ops", "jaxcnn.training"},
    "experiments": {
        "jaxcnn",
        "jaxcnn.models",
        "jaxcnn.ops",
        "jaxcnn.data",
        "jaxcnn.training",
        "jaxcnn.parallel",
        "jaxcnn.detection",
        "jaxcnn.weights",
        "jaxcnn.quantize",
    },
}
FILES = sorted(
    path for package in ("jaxcnn", "experiments") for path in (ROOT / package).rglob("*.py")
)


def part(module: str) -> str:
    """``jaxcnn.ops.pooling`` → ``jaxcnn.ops``; all of experiments is one part."""
    names = module.split(".")
    return ".".join(names[:2]) if ".".join(names[:2]) in ALLOWED else names[0]


def imports(path: Path) -> set[str]:
    """Modules of the project that a file imports, at its top or in its functions; docstrings do not count."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in found if name.split(".")[0] in ("jaxcnn", "experiments")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    here = part(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for module in imports(path) - {"jaxcnn.errors.InputError", "jaxcnn.errors.require_known"}:
        assert part(module) in ALLOWED[here] | {here}, f"{path} imports {module}"


def test_the_report_does_not_measure():
    for path in (ROOT / "experiments" / "report").rglob("*.py"):
        assert not any(
            name.startswith(("experiments.measure", "experiments.workloads.pipelines"))
            for name in imports(path)
        ), path


def test_what_compares_records_measures_nothing():
    found = imports(ROOT / "experiments" / "findings" / "comparison.py")
    assert found == {"experiments.measure.noise.compare", "experiments.records.Record"}, (
        "the statistics, which are pure"
    )
