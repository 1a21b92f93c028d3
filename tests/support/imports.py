"""The import graph of the two packages, read from their source: every kind of import counts.

A *file* is a module's dotted name. A *room* is its second part (``jaxcnn.ops``). Entry points of
`experiments`, files beside the rooms or a room's ``__main__``, are rooms of their own.
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGES = ("jaxcnn", "experiments")


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file: ``jaxcnn/ops/__init__.py`` is ``jaxcnn.ops``."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files(root: Path) -> dict[str, Path]:
    """All modules of the packages by name."""
    paths = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return {module_name(path, root): path for path in sorted(paths)}


def imported_modules(source: str, modules: Iterable[str]) -> set[str]:
    """The modules that a file imports, at its top, in functions and under ``TYPE_CHECKING``.

    Raises:
      ValueError: a relative import, which this does not resolve.
    """
    known, names = set(modules), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"relative import in line {node.lineno}")
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in known else node.module)
    return names & known


def file_graph(root: Path) -> dict[str, set[str]]:
    """Each module and the modules that it imports."""
    files = source_files(root)
    return {
        name: imported_modules(path.read_text(), files) - {name} for name, path in files.items()
    }


def room(module: str) -> str:
    """The room of a module.

    >>> room("jaxcnn.ops.pooling"), room("experiments.run"), room("experiments.report.__main__")
    ('jaxcnn.ops', 'experiments.run', 'experiments.report.__main__')
    """
    parts = module.split(".")
    return ".".join(parts[:3] if parts[-1] == "__main__" else parts[:2])


def room_graph(files: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Each room and the other rooms that its files import."""
    rooms: dict[str, set[str]] = {}
    for module, imports in files.items():
        here = room(module)
        rooms.setdefault(here, set()).update(
            room(other) for other in imports if room(other) != here
        )
    return rooms


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                components.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return components


def reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """All nodes on paths from `start`."""
    nodes: set[str] = set()
    pending = [start]
    while pending:
        for other in graph.get(pending.pop(), ()):
            if other not in nodes:
                nodes.add(other)
                pending.append(other)
    return nodes
