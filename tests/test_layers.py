"""The house keeps its floors: imports point down, each library has its room, and nobody imports in a circle."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("sim", "planner", "holmes_sim")
FILES = sorted(file for floor in FLOORS for file in (ROOT / floor).rglob("*.py"))
NAMES = [str(file.relative_to(ROOT)) for file in FILES]

ROOMS: dict[str, tuple[str, ...]] = {
    "yaml": ("sim/documents.py",),
    "pydantic": (
        "sim/documents.py",
        "sim/schema.py",
        "sim/planfile.py",
        "sim/cases.py",
        "sim/timeline.py",
        "holmes_sim/sweeping/",
    ),
    "networkx": ("sim/cluster.py", "planner/strategies/dt_fm.py"),
    "simpy": ("sim/network.py", "sim/engine.py", "sim/goodput.py"),
    "pulp": ("planner/milp.py",),
    "highspy": ("planner/milp.py",),
    "matplotlib": ("holmes_sim/charts/",),
    "typer": ("holmes_sim/cli/", "holmes_sim/printing/"),
    "rich": ("holmes_sim/cli/", "holmes_sim/printing/"),
    "pandas": ("holmes_sim/",),
    "joblib": ("holmes_sim/sweeping/engines/local.py",),
    "distributed": ("holmes_sim/sweeping/engines/dask.py",),
    "torch": ("holmes_sim/torch_backend/", "holmes_sim/profiling/", "holmes_sim/launching/holmes_launch.py"),
}
"""Third-party library -> the files (or the folder) that may import it."""


def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(name: str, late: bool = True) -> set[str]:
    """Modules that a file imports, late ones (inside functions) too unless told otherwise; those for type checkers left out."""
    found: set[str] = set()
    package = name.rsplit("/", 1)[0].replace("/", ".")

    def visit(node: ast.AST) -> None:
        if is_type_checking(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not late:
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import in {package}; write it absolute"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree(name))
    return found


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(name): name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_imports_point_down(name: str) -> None:
    floor = FLOORS.index(name.split("/")[0])
    above = {module.split(".")[0] for module in imports(name)} & set(FLOORS[floor + 1 :])
    assert above == set(), f"{name} imports from the floor above it"


@pytest.mark.parametrize("name", NAMES)
def test_a_library_is_imported_in_its_room_only(name: str) -> None:
    used = {module.split(".")[0] for module in imports(name)}
    astray = {
        library
        for library in used & set(ROOMS)
        if not any(name == room or (room.endswith("/") and name.startswith(room)) for room in ROOMS[library])
    }
    assert astray == set(), f"{name} imports {astray}; their rooms: {[ROOMS[library] for library in astray]}"


@pytest.mark.parametrize("name", NAMES)
def test_no_library_comes_in_by_the_back_door(name: str) -> None:
    """Whatever is neither ours nor Python's has a room, or is numpy."""
    used = {module.split(".")[0] for module in imports(name)}
    assert used - set(sys.stdlib_module_names) - set(FLOORS) - set(ROOMS) - {"numpy"} == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_a_name_that_says_what_it_is(name: str) -> None:
    assert Path(name).stem not in {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}


def test_nothing_imports_itself_in_a_circle() -> None:
    """Imports at the top of files, followed from every file; a package's `__init__` is a file like the others."""
    arrows = {}
    for module, name in MODULES.items():
        wanted = imports(name, late=False)
        longest = {other for other in wanted if other in MODULES and other != module}
        arrows[module] = longest
    done: set[str] = set()

    def follow(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for other in sorted(arrows[module]):
                follow(other, (*path, module))
            done.add(module)

    for module in sorted(arrows):
        follow(module, ())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sim/units.py"])
def test_powers_of_ten_and_two_are_written_in_units_only(name: str) -> None:
    """1e9 as a scale and 2**30 belong to `sim/units.py`; who needs one imports GIGA or GIBI."""
    scales = {1e9, 1e12, 1e15}
    bare = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree(name))
        if (isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value in scales)
        or (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow)
            and ast.unparse(node.left) == "2"
            and is_binary_scale(node.right)
        )
    ]
    assert bare == []


def is_binary_scale(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in {10, 20, 30, 40}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_printed_past_the_console(name: str) -> None:
    calls = [
        n for n in ast.walk(tree(name)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print"
    ]
    assert calls == []
