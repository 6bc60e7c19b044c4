"""What can be chosen, with facts; exports and imports in Python."""

from __future__ import annotations

import pytest

import holmes_sim as hs
from holmes_sim import lists
from sim.errors import OptionError
from tests import features


def test_entries_of_the_catalogue_have_their_facts_in_si_units():
    rows = {row["name"]: row["facts"] for row in lists.facts("devices")["rows"]}
    assert rows["h100-sxm5-80gb"]["memory"] == pytest.approx(79.2 * 2**30)
    assert rows["h100-sxm5-80gb"]["peak"]["bf16"] == 989e12
    assert lists.facts("devices")["format"] == "holmes-sim/list/1"


def test_modules_say_what_they_are():
    rows = {row["name"]: row["what"] for row in lists.facts("schedules")["rows"]}
    assert rows["gpipe"].startswith("all forwards, then all backwards")


@pytest.mark.parametrize("kind", lists.KINDS)
def test_every_kind_is_listed(kind):
    assert [row["name"] for row in lists.facts(kind)["rows"]] == list(hs.list(kind))


def test_an_unknown_kind_is_one_line():
    with pytest.raises(OptionError, match=r"^'device' cannot be listed; known: devices, links, "):
        hs.list("device")


def test_a_plan_is_exported_and_a_folder_imported(tmp_path):
    launch = hs.export(features.plan_of(features.FEATURES[0]), "csv", tmp_path / "launch")
    assert {path.name for path in (tmp_path / "launch").iterdir()} >= {"README.md", "plan.json"}
    assert "README.md" in launch.files or launch.how
    (tmp_path / "x.txt").write_text("nothing")
    with pytest.raises(hs.HolmesError, match=r"x\.txt"):
        hs.import_(tmp_path / "x.txt")


@pytest.mark.parametrize("kind", lists.REGISTRIES)
def test_what_an_entry_is_ends_as_a_sentence(kind):
    for name in lists.list(kind):
        assert lists.what(kind, name).endswith("."), name
