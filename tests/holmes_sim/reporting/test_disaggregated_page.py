"""The page of a plan with two sets of ranks: its numbers are those of the report document, its chart the timeline."""

from __future__ import annotations

import re

import pytest

import holmes_sim as hs
from holmes_sim import reporting
from holmes_sim.reporting import disaggregated_page
from sim.errors import OptionError
from tests.holmes_sim.reporting.reading import Page, lookup, read
from tests.two_rank_sets import plan


@pytest.fixture(scope="module")
def run():
    return hs.simulate_disaggregated(plan())


@pytest.fixture(scope="module")
def page(run) -> Page:
    return Page(reporting.two_sets_page(run))


def test_every_number_is_that_of_its_document(page, run):
    documents = {**run.facts(), "plan": {"topology": run.plan.topology.facts()}}
    data = [element for element in page.elements if element.tag == "data"]
    assert len(data) > 8
    for element in data:
        value = lookup(documents, element.attributes["data-of"])
        assert float(element.attributes["value"]) == pytest.approx(value)
        shown, half = read(element.text)
        assert shown == pytest.approx(value, abs=1.01 * half)


def test_devices_have_the_colours_of_their_set(page):
    """Two attention ranks, one expert rank and an idle device."""
    placement = page.html.split('<section id="placement">')[1].split("</section>")[0]
    assert [placement.count(f": rank of {name}</title>") for name in ("attention", "experts")] == [2, 1]
    assert "idle: 1 device" in placement and "1 devices" not in placement


def test_a_row_for_each_set_with_its_devices(page):
    text = page.one("section", id="sets").text
    assert "a40" in text and "v100-sxm2-32gb" in text


def test_the_chart_has_all_bars_of_a_short_step_and_the_begin_of_a_long_one(page, run, monkeypatch):
    spans = run.timeline.spans
    shown = [s for s in spans if s.lane != "wait" and (s.lane == "compute" or s.stage == 0)]
    step = page.html.split('<section id="step">')[1]
    assert step.count('class="part ') == len(shown)
    assert "The whole step, of one rank of each set." in step
    monkeypatch.setattr(disaggregated_page, "BARS", 3)
    fewer = reporting.two_sets_page(run).split('<section id="step">')[1]
    assert fewer.count('class="part ') < len(shown)
    assert re.search(r"The first [\d.]+ ms of the step", fewer)


def test_equal_plans_give_equal_bytes(run):
    assert reporting.two_sets_page(run) == reporting.report(plan())
    with pytest.raises(OptionError, match="a plan with two sets of ranks is compared with no strategies"):
        reporting.report(plan(), ("holmes",))
