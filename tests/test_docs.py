"""The README stays short, links lead somewhere, named modules exist, and the generated reference names everything."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

import holmes_sim
from holmes_sim.cli import commands

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
MODULE = re.compile(r"`((?:sim|planner|holmes_sim|tests|benchmarks|validation|topologies)/[\w./-]+)`")
DOTTED = re.compile(r"`((?:sim|planner)(?:\.[a-z_0-9]+)+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        where = path.parent / target if target else path
        assert where.exists(), f"{name_of(path)}: {target}"
        assert not anchor or anchor in anchors(where), f"{name_of(path)}: {target}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_named_files_and_modules_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    missing = [name for name in MODULE.findall(text) if "NAME" not in name and not (ROOT / name).exists()]
    for dotted in DOTTED.findall(text):
        parts = dotted.split(".")
        places = [ROOT.joinpath(*parts[: len(parts) - cut]) for cut in range(2)]  # the last part may be a function
        if not any(place.is_dir() or place.with_suffix(".py").is_file() for place in places):
            missing.append(dotted)
    assert missing == []


def test_the_glossary_has_at_most_sixty_terms() -> None:
    glossary = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Glossary")[1].split("\n## ")[0]
    assert len(re.findall(r"^\|", glossary, re.MULTILINE)) - 2 <= 60


def test_every_page_is_in_the_navigation() -> None:
    def leaves(item: Any) -> list[str]:
        if isinstance(item, str):
            return [item]
        return [leaf for inner in (item.values() if isinstance(item, dict) else item) for leaf in leaves(inner)]

    listed = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_command_and_every_public_name(hooks: Any) -> None:
    page = "\n".join(hooks.commands())
    assert [command.NAME for command in commands.in_order() if f"## {command.NAME}\n" not in page] == []
    assert "`--set KEY=VALUE`" in page
    listed = "\n".join(hooks.interface())
    assert [name for name in holmes_sim.__all__ if f"heading: hs.{name}\n" not in listed] == []


def test_the_reference_has_every_file_format(hooks: Any) -> None:
    page = "\n".join(hooks.formats())
    assert all(f"## {title}\n" in page for title in ("Topology", "Plan", "Study", "Measured runs"))
    assert "### ProfileFacts\n" in page
    assert "| `bandwidth` |" in page
