"""The imports of both packages run one way, as docs/architecture.md draws them."""

import re
from pathlib import Path

import pytest

from tests.support.imports import (
    cycles,
    file_graph,
    imported_modules,
    reachable,
    room_graph,
    source_files,
)
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "architecture.md"
# Rooms by row, from the ground up. A room imports only from rows below its own, and `experiments`
# from all of `jaxcnn`.
ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "jaxcnn": (
        ("errors", "chips", "allocation", "content_digests"),
        ("backend", "ops", "data", "weights", "detection", "distributed"),
        ("fast_layers", "info", "kernel_registration"),
        ("models", "training", "quantize"),
        ("parallel",),
    ),
    "experiments": (
        ("interrupts", "output_files"),
        ("hardware", "cli"),
        ("measure", "config"),
        ("microbenchmarks",),
        ("records",),
        ("workloads", "peers"),
        ("analysis", "evidence"),
        ("report", "preflight"),
        ("harness",),
        ("studies",),
        ("sessions",),
        ("rehearsal",),
        (
            "__main__",
            "run",
            "compare",
            "export",
            "predict",
            "summary",
            "documents",
            "report.__main__",
            "preflight.__main__",
            "rehearsal.__main__",
            "studies.__main__",
        ),
        ("colab",),
    ),
}
NAME_STUDIES = {
    "run",
    "sessions.session",
    "preflight.__main__",
    "studies.__main__",
}  # of `experiments`
# What `analysis` may import of `measure`.
MEASURE_WITHOUT_JAX = {"above_peak", "intervals", "noise", "series", "roofline"}


def rooms_of(package: str, root: Path = ROOT) -> dict[str, set[str]]:
    """The rooms of a package, without its name, and those of the package that they import."""
    prefix = f"{package}."
    return {
        room.removeprefix(prefix): {
            other.removeprefix(prefix) for other in imports if other.startswith(prefix)
        }
        for room, imports in room_graph(file_graph(root)).items()
        if room.startswith(prefix)
    }


def upward_imports(package: str, root: Path = ROOT) -> list[str]:
    """Imports that do not go to a lower row, one line each."""
    row = {room: number for number, rooms in enumerate(ROWS[package]) for room in rooms}
    return [
        f"{room} (row {row.get(room)}) imports {other} (row {row.get(other)})"
        for room, imports in rooms_of(package, root).items()
        for other in sorted(imports)
        if room not in row or other not in row or row[other] >= row[room]
    ]


def drawn_edges(package: str) -> set[tuple[str, str]]:
    """The arrows of the drawing below the heading of a package."""
    text = DOCUMENT.read_text()
    section = text[text.index(f"## The rooms of `{package}`") :]
    drawing = re.search(r"```mermaid\n(.*?)```", section, re.DOTALL)[1]
    arrows = re.findall(r"^\s+(\w+)(?:\[.*?\])? --> (\w+)$", drawing, re.MULTILINE)
    return {tuple(re.sub(r"_main$", ".__main__", end) for end in arrow) for arrow in arrows}


@pytest.mark.parametrize("package", ROWS)
def test_each_room_imports_only_from_the_rows_below(package):
    assert upward_imports(package) == []
    assert set(rooms_of(package)) == {room for rooms in ROWS[package] for room in rooms}


def test_the_library_does_not_import_the_study():
    for module, imports in file_graph(ROOT).items():
        if module.startswith("jaxcnn"):
            assert not [other for other in imports if other.startswith("experiments")], module


def test_no_two_files_import_each_other_in_a_circle():
    assert cycles(file_graph(ROOT)) == []


@pytest.mark.parametrize("package", ROWS)
def test_the_drawing_shows_the_imports(package):
    rooms, edges = rooms_of(package), drawn_edges(package)
    drawn = {room: {end for start, end in edges if start == room} for room in rooms}
    missing = [
        f"{room} --> {other}"
        for room, imports in rooms.items()
        for other in imports
        if other not in reachable(drawn, room)
    ]
    unreal = [f"{start} --> {end}" for start, end in edges if end not in rooms.get(start, ())]
    assert (missing, unreal) == ([], [])


def test_only_entry_points_name_the_table_of_studies():
    for module, path in source_files(ROOT).items():
        name = module.removeprefix("experiments.")
        if name not in NAME_STUDIES | {"studies"}:
            imports = re.search(r"import [^\n]*\bSTUDIES\b", path.read_text())
            assert not imports, f"{module} imports STUDIES"


def test_conclusions_and_pages_need_no_jax():
    """What `analysis` imports of `measure` is pure; the report neither measures nor computes."""
    for module, imports in file_graph(ROOT).items():
        measures = {name for name in imports if name.startswith("experiments.measure.")}
        if module.startswith("experiments.analysis"):
            allowed = {f"experiments.measure.{name}" for name in MEASURE_WITHOUT_JAX}
            assert measures <= allowed, module
        if module.startswith("experiments.report"):
            assert not measures, module


def test_few_files_lie_beside_the_rooms():
    assert len(list((ROOT / "experiments").glob("*.py"))) <= 10


@pytest.fixture
def planted(tmp_path):
    """A copy of the source in which a test can plant an import."""
    for path in source_files(ROOT).values():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "from experiments.studies import STUDIES",
        "def late():\n    from experiments.studies import train",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import experiments.studies.train",
    ],
    ids=["at the top", "in a function", "for types"],
)
def test_a_planted_upward_import_is_noticed(planted, line):
    file = planted / "experiments" / "measure" / "roofline.py"
    file.write_text(f"{file.read_text()}\n{line}\n")
    (problem,) = upward_imports("experiments", planted)
    assert problem == "measure (row 2) imports studies (row 9)"


def test_a_planted_cycle_is_noticed(planted):
    file = planted / "jaxcnn" / "training" / "history.py"
    file.write_text(f"{file.read_text()}\nfrom jaxcnn.training import loop\n")
    (component,) = cycles(file_graph(planted))
    assert {"jaxcnn.training.history", "jaxcnn.training.loop"} <= set(component)


def test_relative_imports_are_refused():
    with pytest.raises(ValueError, match="relative import in line 1"):
        imported_modules("from . import cli", ["experiments.cli"])
