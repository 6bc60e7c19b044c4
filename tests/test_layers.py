"""The house keeps its floors: imports point down, each library has its room, and nobody imports in a circle."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("sim", "planner", "holmes_sim")
FILES = sorted(file for floor in FLOORS for file in (ROOT / floor).rglob("*.py"))
NAMES = [str(file.relative_to(ROOT)) for file in FILES]

ROOMS: dict[str, tuple[str, ...]] = {
    "yaml": ("sim/formats/documents.py",),
    "pydantic": (
        "sim/formats/documents.py",
        "sim/formats/fields.py",
        "sim/formats/catalog_facts.py",
        "sim/formats/profile_facts.py",
        "sim/formats/stack_facts.py",
        "sim/formats/topology_facts.py",
        "sim/formats/planfile.py",
        "holmes_sim/cases.py",
        "sim/engine/timeline.py",
        "holmes_sim/sweeping/",
    ),
    "networkx": (
        "sim/hardware/transport.py",
        "sim/engine/components.py",
        "sim/engine/replica_blocks.py",
        "planner/placement/communication_groups.py",
    ),
    "simpy": (
        "sim/network/sharing.py",
        "sim/engine/engine.py",
        "sim/engine/communication.py",
        "sim/engine/state.py",
        "sim/engine/steady_state.py",
        "sim/results/goodput.py",
    ),
    "pulp": ("planner/models/solver.py",),
    "highspy": ("planner/models/solver.py",),
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


def imports(name: str) -> set[str]:
    """Modules that a file imports, late ones (inside functions) too; those for type checkers left out."""
    found: set[str] = set()
    package = name.rsplit("/", 1)[0].replace("/", ".")

    def visit(node: ast.AST) -> None:
        if is_type_checking(node):
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


def arrows() -> networkx.DiGraph[str]:
    """Who imports whom among our modules, late imports and those for type checkers included."""
    found: networkx.DiGraph[str] = networkx.DiGraph()
    for module, name in MODULES.items():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [part if part in MODULES else str(node.module) for part in parts]
            else:
                continue
            found.add_edges_from((module, other) for other in wanted if other in MODULES and other != module)
    return found


def room(module: str) -> str:
    """The folder, or the file, of a module right below its floor."""
    return ".".join(module.split(".")[:2])


def test_no_module_imports_itself_in_a_circle() -> None:
    assert list(networkx.simple_cycles(arrows())) == []


def test_no_room_imports_itself_in_a_circle() -> None:
    between = networkx.DiGraph((room(a), room(b)) for a, b in arrows().edges if room(a) != room(b))
    assert [sorted(circle) for circle in networkx.strongly_connected_components(between) if len(circle) > 1] == []


WIDE = {"holmes_sim/commands.py": ("plan",), "holmes_sim/cli/options.py": ("_pins",)}
"""File -> functions that may have more than seven parameters; `CONTRIBUTING.md` says why."""


@pytest.mark.parametrize("name", NAMES)
def test_modules_classes_and_functions_are_small(name: str) -> None:
    """At most 300 lines in a module, 200 in a class, and seven parameters of a function."""
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 300
    wide = ("command",) if name.startswith("holmes_sim/cli/commands/") else WIDE.get(name, ())
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno is not None and node.end_lineno - node.lineno < 200, node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in wide:
            own = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            assert len([arg for arg in own if arg.arg not in ("self", "cls")]) <= 7, node.name


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
