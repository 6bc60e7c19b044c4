"""The README stays short, links lead somewhere, named modules exist, errors are those of the data, and the generated reference
names everything."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

import holmes_sim
from holmes_sim.cli import commands
from holmes_sim.residuals import residuals

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


OLD_SOURCES = tuple(path.stem for path in (ROOT / "validation").glob("*.yaml"))
COLUMN_ROWS = (
    ("default", "fitted to the other twelve sources"),
    ("honest", "`holmes-sim validate --stack honest`"),
    ("honest-tp", "`holmes-sim validate --stack honest-tp`"),
    ("honest-pp", "`holmes-sim validate --stack honest-pp`"),
    ("honest-nodes", "`holmes-sim validate --stack honest-nodes`"),
)


def held_out(column: str) -> float:
    """Mean over sources of the mean error of runs that no fit saw."""
    errors: dict[str, list[float]] = {source: [] for source in OLD_SOURCES}
    for one in residuals():
        if one.source in errors and column in one.columns:
            errors[one.source].append(abs(1 / one.ratio(column) - 1))
    return fmean(map(fmean, errors.values()))


@pytest.mark.parametrize(("column", "words"), COLUMN_ROWS)
def test_the_page_of_accuracy_says_the_errors_of_held_out_runs(column: str, words: str) -> None:
    lines = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith("|") and words in line)
    assert f"{100 * held_out(column):.1f} %" in row


def test_the_readme_and_the_model_say_the_errors_of_the_page_of_accuracy() -> None:
    readme, model, accuracy = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/model.md", "docs/accuracy.md")
    )
    (fitted,) = re.findall(r"--stack default` \| \*\*([\d.]+ %)\*\*", accuracy)
    unseen = f"{100 * held_out('default'):.1f} %"
    assert f"step time is {fitted} with one set of" in readme
    assert f"{unseen} for sources that the constants were not fitted to" in readme
    assert f"{unseen} error, against {fitted} in sample" in model
