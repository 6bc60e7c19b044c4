"""The page in a real browser: it fits 1280 and 390 pixels in both themes, its controls edit, and a search ends with its plan.

Runs where a Chromium is found ($HOLMES_SIM_CHROMIUM, or on the path); elsewhere it is skipped, and pytest's summary says so.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from holmes_sim.serving import search
from holmes_sim.serving.controls import edited
from holmes_sim.serving.page import State
from tests.holmes_sim.reporting import chromium
from tests.holmes_sim.serving import pretended
from tests.holmes_sim.serving.visiting import TOKEN

FOUND = chromium.executable()
pytestmark = pytest.mark.skipif(
    FOUND is None, reason="NO CHROMIUM: the page of serve was not opened; install chromium or set HOLMES_SIM_CHROMIUM to one"
)
SIZES = [(1280, 900), (390, 844)]
REACHABLE = """[...document.querySelectorAll('a, button, input, select')].filter(e => {
  const box = e.getBoundingClientRect(), scroll = e.closest('.scroll');
  if (e.disabled || e.matches('.apply, .upload input') || scroll) return false;
  return box.width < 24 || box.height < 12 || box.left < 0 || box.right > innerWidth;
}).map(e => e.outerHTML)"""
"""Controls that are too small, or outside of the window."""


@pytest.fixture(scope="module")
def browser(site):
    """A browser that has entered the site; it has complained of nothing when the tests are over."""
    found = chromium.Chromium(FOUND)
    found.visit(f"{site.address}/?token={TOKEN}")
    yield found
    assert found.complaints == []
    found.close()


@pytest.fixture(scope="module")
def two(site, two_plans) -> str:
    """The address of a state with two plans, of topologies that differ in a key with a long name."""
    plan, other = two_plans
    faster = edited(other.topology, {"clusters.east.node.nics[0].bandwidth": "800 Gbit/s"})
    plan, beside = (site.store.keep_plan(one) for one in (plan, replace(other, topology=faster)))
    return site.address + State(site.begin.topology, plan, beside).address()


def go(browser, script: str) -> str:
    """Run a script that leads to another page; its address without the one of the server."""
    browser.ask(f"(() => {{ {script} }})()")
    browser.loaded()
    return browser.ask("location.pathname + location.search")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits_its_window_and_its_controls_are_reachable(browser, two, width, height, dark):
    browser.visit(two, width, height, dark)
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), "it scrolls sideways"
    assert browser.ask("(t => t.scrollWidth <= t.clientWidth)(document.querySelector('.numbers'))"), "numbers scroll sideways"
    assert browser.ask(REACHABLE) == []
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 21, 24)" if dark else "rgb(255, 255, 255)")
    sides = browser.ask("[...document.querySelectorAll('.pair > div')].map(e => e.getBoundingClientRect().top)")
    assert (sides[0] == sides[1]) == (width == 1280), "two plans stand side by side where there is space"
    plan = browser.ask("(r => [r.top, r.bottom])(document.querySelector('button.main').getBoundingClientRect())")
    assert 0 < plan[0] < plan[1] < height, "Plan is in sight without scrolling"


def test_words_have_contrast(browser, two):
    """4.5 to 1 (WCAG 2.2, 1.4.3)."""
    for dark in (False, True):
        browser.visit(two, dark=dark)
        assert browser.ask(chromium.PALE_WORDS) == []


def test_a_control_edits_and_keeps_the_place(browser, site):
    browser.visit(site.address + site.begin.address(), *SIZES[1])
    there = go(browser, "scrollTo(0, 300); document.querySelector('[aria-label=\"west: 3 nodes\"]').click()")
    assert there != site.begin.address()
    assert browser.ask("document.querySelector('[name=\"clusters.west.nodes\"]').value") == "3"
    assert browser.ask("[scrollY, document.activeElement.value]") == [300, "clusters.west.nodes=4"]


def test_a_slider_shows_its_rate_while_it_moves_and_edits_when_it_is_let_go(browser, site):
    browser.visit(site.address + site.begin.address())
    slide = (
        "const s = document.querySelector('[type=range]'); s.value = 39; s.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    assert browser.ask(f"(() => {{ {slide} return [s.nextElementSibling.value, s.ariaValueText] }})()") == ["800 Gbit/s"] * 2
    go(browser, f"{slide} s.dispatchEvent(new Event('change', {{bubbles: true}}))")
    assert "800 Gbit/s" in browser.ask("document.querySelector('.trunk span').innerText.replace(/\\u00a0/g, ' ')")


def test_enter_in_a_field_applies_it(browser, site):
    """And does not press the first button of the form, which would remove a node."""
    browser.visit(site.address + site.begin.address())
    browser.ask("(f => { f.focus(); f.select() })(document.querySelector('[name=\"workload.global_batch_size\"]'))")
    browser.call("Input.insertText", {"text": "64"})
    browser.call(
        "Input.dispatchKeyEvent",
        {"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
    )
    browser.loaded()
    script = (
        "['workload.global_batch_size', 'clusters.east.nodes'].map(name => document.querySelector(`[name=\"${name}\"]`).value)"
    )
    assert browser.ask(script) == ["64", "2"]


def test_plan_takes_the_field_that_was_just_changed(browser, site, two_plans, tmp_path, monkeypatch):
    """The press takes the focus from the field; its edit alone would replace the page before the button is let go."""
    monkeypatch.setattr(search, "COMMAND", pretended.with_plan(tmp_path, two_plans[0], until_stopped=True))
    browser.visit(site.address + site.begin.address())
    browser.ask("(f => { f.focus(); f.select() })(document.querySelector('[name=\"workload.global_batch_size\"]'))")
    browser.call("Input.insertText", {"text": "64"})
    x, y = browser.ask("(r => [r.left + 9, r.top + 9])(document.querySelector('button.main').getBoundingClientRect())")
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    time.sleep(0.3)
    browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
    browser.loaded()
    assert browser.ask("document.querySelector('[name=\"workload.global_batch_size\"]').value") == "64"
    assert browser.ask("document.querySelectorAll('.search').length") == 1


def test_a_search_shows_its_improvements_and_ends_with_its_plan(browser, site, two_plans, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "COMMAND", pretended.with_plan(tmp_path, two_plans[0], until_stopped=True))
    browser.visit(site.address + site.begin.address())
    go(browser, "document.querySelector('button.main').click()")
    shown = "[...document.querySelectorAll('.search data')].slice(0, 3).map(e => e.textContent).join()"
    wait = "new Promise(done => { const look = () => (%s) ? done(1) : setTimeout(look, 50); look() })"
    browser.ask(wait % f"{shown} === '1.25 s,1 s,20.0%'")
    assert browser.ask("[...document.querySelectorAll('[data-found] tr')].map(e => e.innerText.replace(/\\t/g, ' '))") == [
        "0.5 s 2 s estimating layouts",
        "1.5 s 1.25 s 2 layouts settled",
    ]
    browser.ask("document.querySelector('.search button').click()")
    until = time.monotonic() + 30
    while (
        browser.ask("document.querySelectorAll('#topology .node rect[fill^=\"var(--p\"]').length") < 4
    ):  # stages in the picture
        assert time.monotonic() < until
        time.sleep(0.1)
    assert browser.ask("location.search") == f"?plan={site.store.keep_plan(two_plans[0])}"
