"""Registries that are folders: each module of a package is one entry, so a new entry is one new file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from sim.errors import HolmesError, OptionError

Entry = TypeVar("Entry")


def module_names(path: Iterable[str]) -> tuple[str, ...]:
    """Names of the modules in the folders of a package (its `__path__`), sorted; imports none of them."""
    return tuple(sorted(module.name for module in iter_modules(path)))


def known_names(name: str, known: tuple[str, ...]) -> str:
    """The default end of the error for an unknown name: all names there are."""
    return f"; known: {', '.join(known)}"


class Registry(Generic[Entry]):
    """The modules of a package by name, imported when they are first needed.

    `noun` is what an error calls an entry, `error` its class, and `hint(name, known)` the end of its text. An entry is known by
    the name of its module or, with `by_constant`, by the module's constant `NAME`.
    """

    def __init__(
        self,
        package: str,
        noun: str,
        error: type[HolmesError] = OptionError,
        hint: Callable[[str, tuple[str, ...]], str] = known_names,
        by_constant: bool = False,
    ):
        self.package, self.noun, self.error, self.hint, self.by_constant = package, noun, error, hint, by_constant
        self._loaded: dict[str, Entry] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all entries, sorted."""
        return tuple(sorted(self._modules))

    def get(self, name: str) -> Entry:
        """The entry of a name; raises `error` for an unknown one."""
        found = self._loaded.get(name)
        if found is None:
            if name not in self._modules:
                raise self.error(f"{self.noun} {name!r} is unknown{self.hint(name, self.names)}")
            found = self._loaded[name] = self._load(self._modules[name])
        return found

    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order of their names."""
        return tuple(self.get(name) for name in self.names)

    @cached_property
    def _modules(self) -> dict[str, str]:
        """The module of each entry, by the entry's name."""
        modules = module_names(import_module(self.package).__path__)
        return {self._load(module).NAME if self.by_constant else module: module for module in modules}

    def _load(self, module: str) -> Any:
        return import_module(f"{self.package}.{module}")
