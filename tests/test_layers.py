"""The house keeps its floors: imports point down, each library has its room, and no imports form a circle."""

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
        "sim/formats/islandsfile.py",
        "sim/formats/disaggregatedfile.py",
        "sim/formats/adapter_facts.py",
        "sim/formats/catalog_facts.py",
        "sim/formats/model_facts.py",
        "sim/formats/profile_facts.py",
        "sim/formats/require_facts.py",
        "sim/formats/routing_facts.py",
        "sim/formats/stack_facts.py",
        "sim/formats/topology_facts.py",
        "sim/formats/planfile.py",
        "sim/formats/proofs.py",
        "sim/formats/pipelinesfile.py",
        "holmes_sim/cases.py",
        "holmes_sim/document_parts.py",
        "holmes_sim/schemas/",
        "sim/engine/timeline.py",
        "holmes_sim/sweeping/",
    ),
    "networkx": (
        "sim/hardware/transport.py",
        "sim/islands/exchange.py",
        "planner/islands/partitions.py",
        "planner/placement/communication_groups.py",
    ),
    "simpy": (
        "sim/network/sharing.py",
        "sim/engine/engine.py",
        "sim/engine/communication.py",
        "sim/engine/state.py",
        "sim/engine/steady_state.py",
        "sim/islands/links.py",
        "sim/islands/membership.py",
        "sim/disaggregation/simulation.py",
        "sim/islands/outer_period.py",
        "sim/results/goodput.py",
    ),
    "pulp": ("planner/models/solver.py",),
    "highspy": ("planner/models/solver.py",),
    "matplotlib": ("holmes_sim/charts/",),
    "typer": ("holmes_sim/cli/", "holmes_sim/printing/"),
    "rich": ("holmes_sim/cli/", "holmes_sim/printing/"),
    "pandas": ("holmes_sim/",),
    "joblib": ("holmes_sim/processes.py", "holmes_sim/sweeping/engines/local.py"),
    "scipy": ("planner/replan/moves.py",),
    "distributed": ("holmes_sim/sweeping/engines/dask.py",),
    "starlette": ("holmes_sim/serving/",),
    "uvicorn": ("holmes_sim/serving/",),
    "jinja2": ("holmes_sim/serving/",),
    "markupsafe": ("holmes_sim/serving/",),
    "torch": ("holmes_sim/torch_backend/", "holmes_sim/profiling/", "holmes_sim/launching/holmes_launch.py"),
}
"""Third-party library -> the files (or the folder) that may import it."""


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(name): name for name in NAMES}
Trees = dict[str, ast.Module]
Libraries = dict[str, set[str]]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """File -> its syntax tree."""
    return {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in NAMES}


@pytest.fixture(scope="module")
def libraries(trees: Trees) -> Libraries:
    """File -> top-level packages that it imports."""
    return {name: {module.split(".")[0] for module in imports(name, tree)} for name, tree in trees.items()}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(name: str, tree: ast.Module) -> set[str]:
    """Modules that a file imports, inside functions too; those for type checkers are left out."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if is_type_checking(node):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import; write it absolute"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def test_imports_point_down(libraries: Libraries) -> None:
    """No file imports from a floor above its own."""
    upward = {
        name: libraries[name] & set(FLOORS[FLOORS.index(name.split("/")[0]) + 1 :])
        for name in NAMES
        if libraries[name] & set(FLOORS[FLOORS.index(name.split("/")[0]) + 1 :])
    }
    assert upward == {}


def test_a_library_is_imported_in_its_room_only(libraries: Libraries) -> None:
    outside = [
        f"{name} imports {library}; only {', '.join(ROOMS[library])} may"
        for name in NAMES
        for library in sorted(libraries[name] & set(ROOMS))
        if not any(name == room or (room.endswith("/") and name.startswith(room)) for room in ROOMS[library])
    ]
    assert outside == []


def test_every_third_party_library_has_a_room(libraries: Libraries) -> None:
    """Whatever is neither ours nor in Python's standard library has a room, or is numpy."""
    known = set(sys.stdlib_module_names) | set(FLOORS) | set(ROOMS) | {"numpy"}
    assert {name: found - known for name, found in libraries.items() if found - known} == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}
    assert [name for name in NAMES if Path(name).stem in vague] == []


@pytest.fixture(scope="module")
def edges(trees: Trees) -> networkx.DiGraph[str]:
    """Who imports whom among our modules, late imports and those for type checkers included."""
    found: networkx.DiGraph[str] = networkx.DiGraph()
    for module, name in MODULES.items():
        for node in ast.walk(trees[name]):
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


def test_no_module_imports_itself_in_a_circle(edges: networkx.DiGraph[str]) -> None:
    assert list(networkx.simple_cycles(edges)) == []


def test_no_room_imports_itself_in_a_circle(edges: networkx.DiGraph[str]) -> None:
    between = networkx.DiGraph((room(a), room(b)) for a, b in edges.edges if room(a) != room(b))
    assert [sorted(circle) for circle in networkx.strongly_connected_components(between) if len(circle) > 1] == []


WIDE = {"holmes_sim/commands.py": ("plan",), "holmes_sim/cli/options.py": ("_pins",)}
"""File -> functions that may have more than seven parameters; `CONTRIBUTING.md` says why."""


def test_modules_have_at_most_300_lines() -> None:
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in NAMES}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_classes_have_at_most_200_lines(trees: Trees) -> None:
    classes = [(name, node) for name in NAMES for node in ast.walk(trees[name]) if isinstance(node, ast.ClassDef)]
    assert [f"{name}: {node.name}" for name, node in classes if (node.end_lineno or 0) - node.lineno >= 200] == []


def test_functions_have_at_most_seven_parameters(trees: Trees) -> None:
    wide = []
    for name in NAMES:
        allowed = ("command",) if name.startswith("holmes_sim/cli/commands/") else WIDE.get(name, ())
        for node in ast.walk(trees[name]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in allowed:
                own = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if len([arg for arg in own if arg.arg not in ("self", "cls")]) > 7:
                    wide.append(f"{name}: {node.name}")
    assert wide == []


def is_bare_scale(node: ast.AST) -> bool:
    """Whether a node is 1e9, 1e12, 1e15, or 2 to the power of 10, 20, 30 or 40."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and node.value in {1e9, 1e12, 1e15}
    power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.left) == "2"
    return power and isinstance(node.right, ast.Constant) and node.right.value in {10, 20, 30, 40}


def test_powers_of_ten_and_two_are_written_in_units_only(trees: Trees) -> None:
    """1e9 as a scale and 2**30 belong to `sim/units.py`; other files import GIGA or GIBI."""
    bare = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name in NAMES
        if name != "sim/units.py"
        for node in ast.walk(trees[name])
        if is_bare_scale(node)
    ]
    assert bare == []


def test_nothing_is_printed_past_the_console(trees: Trees) -> None:
    calls = [
        f"{name}:{node.lineno}"
        for name in NAMES
        for node in ast.walk(trees[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []
