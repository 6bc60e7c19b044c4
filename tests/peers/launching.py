"""What readers of launches by torchrun share: hosts as torchrun and the shim have them, arguments by name, absent packages."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.distributed.run import get_args_parser


def load(path: Path) -> Any:
    """A Python file of the export, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scripts(folder: Path) -> Iterator[tuple[str, Any]]:
    """(host, options of torchrun) of every script, read by torchrun's own parser."""
    for script in sorted((folder / "launch").glob("*.sh")):
        line = next(line for line in script.read_text().splitlines() if line.startswith("exec torchrun"))
        words = shlex.split(re.sub(r"\$\{MASTER_\w+:-([^}]*)\}", r"\1", line))
        yield script.name.removesuffix(".sh"), get_args_parser().parse_args(words[2:])


def hosts(folder: Path, entry: str) -> dict[str, str]:
    """Host of every rank, as torchrun and the shim have it: nodes in order, each with its processes."""
    shim, table = load(folder / "holmes_launch.py"), json.loads((folder / "ranks.json").read_text())
    nodes = {}
    for host, options in scripts(folder):
        assert options.training_script.endswith("holmes_launch.py")
        assert options.training_script_args[0] == entry
        nodes[options.node_rank] = (host, int(options.nproc_per_node), int(options.nnodes))
    assert sorted(nodes) == list(range(len(nodes)))
    world = sum(processes for _, processes, _ in nodes.values())
    found = {}
    for host, processes, count in nodes.values():
        assert count == len(nodes)
        for local in range(processes):
            rank = rank_of(shim, table, host, local, processes, world)
            assert rank not in found
            found[rank] = host
    return found


def rank_of(shim: Any, table: dict[str, Any], host: str, local: int, processes: int, world: int) -> str:
    """The rank that the shim gives a process of a host."""
    given = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(processes), "WORLD_SIZE": str(world), "HOLMES_SCRIPT": host}
    return str(shim.seat_of(table, shim.host_of(table, given, host), given)["RANK"])


def by_name(words: list[str]) -> dict[str, str]:
    """Flag -> its value, `` where it has none, the last word where it has several."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            assert name not in found
            found[name] = ""
        else:
            found[name] = word
    return found


class Absent(types.ModuleType):
    """A package that is not installed and is not needed for what is read: classes of it are empty."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else importlib.import_module(f"{self.__name__}.{name}")


class WithoutThem(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds named packages as absent ones."""

    def __init__(self, *packages: str) -> None:
        self.packages = packages
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        here = name.split(".")[0] in self.packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if here else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass
