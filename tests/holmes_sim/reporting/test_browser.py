"""The page in a real browser: no complaint, no request, hover, zoom, keys and fingers, both themes, a phone's width.

Runs where a Chromium is found ($HOLMES_SIM_CHROMIUM, or on the path); elsewhere it is skipped, and pytest's summary says so.
"""

from __future__ import annotations

import math
import re

import pytest
from matplotlib import image

from holmes_sim import reporting
from tests.holmes_sim.reporting import chromium
from tests.holmes_sim.reporting.reading import Page, actions

FOUND = chromium.executable()
pytestmark = pytest.mark.skipif(
    FOUND is None, reason="NO CHROMIUM: the report page was not opened; install chromium or set HOLMES_SIM_CHROMIUM to one"
)
SIZES = [(1280, 900), (390, 844)]


@pytest.fixture(scope="module")
def browser():
    found = chromium.Chromium(FOUND)
    yield found
    found.close()


@pytest.fixture(scope="module")
def file(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def islands_file(uneven_islands, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "islands.html"
    path.write_text(reporting.report(uneven_islands), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, file):
    """The page at 1280 pixels by day, its timeline in sight; it has complained of nothing when the test is over."""
    browser.complaints.clear()
    browser.open(file)
    browser.ask("document.getElementById('pipeline').scrollIntoView()")
    browser.settle()
    yield browser
    assert browser.complaints == []


def test_a_page_that_gives_way_to_another_one_is_settled(browser, file, tmp_path):
    """A click that leads on may do so while the driver waits for a frame; that is no failure of the page."""
    (tmp_path / "first.html").write_text("<p>first")
    browser.open(tmp_path / "first.html")
    assert browser.settle()
    browser.ask(f"requestAnimationFrame = () => setTimeout(() => location = '{file.resolve().as_uri()}', 200), 1")
    assert not browser.settle()
    browser.loaded()
    assert browser.ask("location.href") == file.resolve().as_uri()


def box(browser, selector: str) -> tuple[float, float, float, float]:
    """Left, top, width and height of an element in the window."""
    script = f"(r => [r.left, r.top, r.width, r.height])(document.querySelector('{selector}').getBoundingClientRect())"
    return tuple(browser.ask(script))


def canvas(browser) -> tuple[float, float, float, float]:
    """Left, top, width and height of what the timeline is drawn on, without its frame."""
    left, top, width, height = box(browser, "#timeline")
    return left + 1, top + 1, width - 2, height - 2


def click(browser, selector: str) -> None:
    left, top, width, height = box(browser, selector)
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, left + width / 2, top + height / 2, button="left", clickCount=1)


def seen(browser) -> tuple[float, float]:
    """The seconds that the timeline shows."""
    return tuple(map(float, browser.ask("(d => [d.from, d.until])(document.getElementById('timeline').dataset)")))


def tip(browser) -> str:
    return browser.ask("(t => t.hidden ? '' : t.innerText)(document.getElementById('tip'))")


def open_without_complaint(browser, file, *window) -> None:
    """Open a page, which loads nothing else and does not scroll sideways."""
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(file, *window)
    assert browser.complaints == []
    assert set(browser.requests) == {file.as_uri()}
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), "it scrolls sideways"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_opens_without_a_complaint_and_fits_its_window(browser, file, width, height, dark):
    open_without_complaint(browser, file, width, height, dark)
    drawn = browser.ask(
        "(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data])(document.getElementById('timeline'))"
    )
    colours = {tuple(drawn[at : at + 3]) for at in range(0, len(drawn), 4)}
    assert {(0x56, 0xB4, 0xE9), (0x00, 0x9E, 0x73)} <= colours, "forward and backward are drawn"
    assert ((18, 21, 24) in colours) == dark and ((255, 255, 255) in colours) == (not dark)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page_of_islands_opens_without_a_complaint_and_fits(browser, islands_file, width, height, dark):
    open_without_complaint(browser, islands_file, width, height, dark)
    assert browser.ask(chromium.PALE_WORDS) == []
    left, _, lane, height = box(browser, ".lane")
    (start, _, first, bar), (chart, *_) = box(browser, ".lane .part"), box(browser, ".periods")
    assert start == pytest.approx(left, abs=1) and first / lane == pytest.approx(0.368, abs=0.01) and bar == height
    assert (left == chart) == (width == 390), "names are above the bars on a phone, and beside them on a screen"
    assert browser.ask("getComputedStyle(document.querySelector('.lane .part')).backgroundColor") == "rgb(86, 180, 233)"


def test_an_error_of_a_page_is_recorded(browser, tmp_path):
    """The tests above can fail."""
    (tmp_path / "broken.html").write_text("<script>console.error('no'); nobody()</script><img src='there-is-none.png'>")
    browser.complaints.clear()
    browser.open(tmp_path / "broken.html")
    complaints = " ".join(browser.complaints)
    assert "nobody is not defined" in complaints and "'no'" in complaints and "ERR_FILE_NOT_FOUND" in complaints
    assert any(url.endswith("there-is-none.png") for url in browser.requests)
    browser.complaints.clear()


def test_hover_shows_rank_action_microbatch_and_times(page, html, study):
    """The pointer goes down over the middle of the first long backward of each row; what the tip says is the timeline's."""
    left, top, width, height = canvas(page)
    run, coordinates = study.run, study.plan.config.coordinates
    step, groups = run.timeline.step_s, sorted(run.timeline.alike, key=lambda group: (coordinates(group[0])[2], group[0]))
    rows = actions(Page(html).spans)
    assert len(rows) == len(groups) == 4
    for group, row in zip(groups, rows, strict=True):
        start, end = next((start, end) for _, kind, _, _, start, end in row if kind == "B" and end - start > 1e9 * step / 100)
        mine = [span for span in run.timeline.spans if span.kind == "B" and span.rank == group[0]]
        (microbatch,) = {span.microbatch for span in mine if round(span.start * 1e9) == start}
        tips = set()
        for y in range(0, int(height), 12):
            page.mouse("mouseMoved", left + (start + end) / 2e9 / step * width, top + y)
            tips.add(tip(page))
        (found,) = {text for text in tips if f"rank {group[0]} (" in text and text.startswith("backward")}
        head, where, times = found.splitlines()
        assert head == f"backward of microbatch {microbatch}"
        assert where == f"stage {coordinates(group[0])[2]}, rank {group[0]} (same for {', '.join(map(str, group[1:]))})"
        said = re.fullmatch(r"(\S+) (\S+) to (\S+) (\S+): (\S+) (\S+)", times).groups()
        for number, unit, fact in zip(said[::2], said[1::2], (start, end, end - start), strict=True):
            assert float(number) * {"s": 1e9, "ms": 1e6, "us": 1e3}[unit] == pytest.approx(fact, rel=5e-4)
    page.mouse("mouseMoved", 2, 2)
    assert tip(page) == ""


def test_hover_shows_the_same_when_zoomed(page, html, study):
    """In the right half of the second quarter of the step: what the tip says happens there."""
    step = study.run.timeline.step_s
    click(page, "[data-do=in]")
    click(page, "[data-do=in]")
    begin, end = seen(page)
    assert (begin, end) == pytest.approx((3 * step / 8, 5 * step / 8))
    left, top, width, _ = canvas(page)
    page.mouse("mouseMoved", left + 3 * width / 4, top + 50)
    start, start_unit, stop, stop_unit = re.search(r"(\S+) (\S+) to (\S+) (\S+):", tip(page)).groups()
    assert (start_unit, stop_unit) == ("s", "s")
    at, pixel = begin + 0.75 * (end - begin), (end - begin) / width
    assert float(start) - 5e-4 - 4 * pixel <= at <= float(stop) + 5e-4 + 4 * pixel


def test_buttons_zoom_and_move(page, study):
    step = study.run.timeline.step_s
    assert seen(page) == (0, step)
    click(page, "[data-do=in]")
    assert seen(page) == pytest.approx((step / 4, 3 * step / 4))
    click(page, "[data-do=left]")
    assert seen(page) == pytest.approx((0, step / 2))
    click(page, "[data-do=left]")
    assert seen(page) == pytest.approx((0, step / 2)), "there is nothing before the step"
    click(page, "[data-do=right]")
    assert seen(page) == pytest.approx((step / 4, 3 * step / 4))
    click(page, "[data-do=out]")
    assert seen(page) == pytest.approx((0, step))
    click(page, "[data-do=in]")
    click(page, "[data-do=all]")
    assert seen(page) == (0, step)
    assert page.ask("document.getElementById('range').textContent") == "whole step: 8.955 s"


def test_the_wheel_zooms_about_the_pointer_and_dragging_moves(page, study):
    step = study.run.timeline.step_s
    left, top, width, _ = canvas(page)
    pixel = step / width
    page.mouse("mouseWheel", left + width / 4, top + 40, deltaX=0, deltaY=-300, modifiers=2)
    begin, end = seen(page)
    assert end - begin == pytest.approx(step / math.e)
    assert begin + (end - begin) / 4 == pytest.approx(step / 4, abs=pixel), "what is under the pointer stays there"
    page.mouse("mousePressed", left + 400, top + 40, button="left", clickCount=1)
    page.mouse("mouseMoved", left + 300, top + 40, button="left", buttons=1)
    page.mouse("mouseReleased", left + 300, top + 40, button="left", clickCount=1)
    assert seen(page)[0] == pytest.approx(begin + 100 / width * (end - begin))
    assert seen(page)[1] - seen(page)[0] == pytest.approx(end - begin)


def test_keys_go_from_action_to_action(page, study):
    page.ask("document.getElementById('timeline').focus()")
    page.key("+", "+")
    assert seen(page)[1] - seen(page)[0] == pytest.approx(study.run.timeline.step_s / 2)
    page.key("0", "0")
    page.key("ArrowRight")
    first = tip(page)
    assert "rank 0" in first
    page.key("ArrowRight")
    assert tip(page) not in ("", first)
    page.key("ArrowDown")
    assert "rank 2 (same for 3, 4, 5, 10, 11, 12, 13)" in tip(page)
    page.key("Escape")
    assert tip(page) == ""


def test_fingers_pinch_and_tap(browser, file, study):
    browser.complaints.clear()
    browser.open(file, *SIZES[1])
    browser.ask("document.getElementById('pipeline').scrollIntoView()")
    browser.settle()
    left, top, width, _ = canvas(browser)

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": left + x, "y": top + 60, "id": index} for index, x in enumerate(xs)]
        browser.call("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        browser.settle()

    touch("touchStart", width / 2)
    touch("touchEnd")
    assert "rank 0" in tip(browser)
    touch("touchStart", 150, 200)
    for apart in (10, 20, 30):
        touch("touchMove", 150 - apart, 200 + apart)
    touch("touchEnd")
    begin, end = seen(browser)
    assert end - begin < 0.6 * study.run.timeline.step_s
    assert browser.complaints == []


def test_the_tables_scroll_in_their_own_boxes(browser, file):
    browser.open(file, *SIZES[1])
    wide = browser.ask("[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth).length")
    assert wide > 0
    assert browser.ask(
        "[...document.querySelectorAll('.scroll, pre')].every(b => b.getBoundingClientRect().right <= innerWidth)"
    )
    assert browser.ask("[...document.querySelectorAll('.scroll')].every(b => b.tabIndex === 0)"), "keys can scroll them"


def test_what_is_shown_in_the_dark_reads_as_well(browser, file):
    """The computed colours of every element with words, against what lies behind them: 4.5 to 1 (WCAG 2.2, 1.4.3)."""
    for dark in (False, True):
        browser.open(file, dark=dark)
        assert browser.ask(chromium.PALE_WORDS) == []


def test_a_notebook_shows_it_and_its_links_stay_in_their_frame(browser, file, html, tmp_path):
    """A click on a link of the page scrolls there, where the timeline is drawn; nothing is loaded, and nothing reached."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!DOCTYPE html><title>notebook</title><body>{html._repr_html_()}</body>")
    browser.complaints.clear()
    browser.open(notebook)
    assert browser.ask("document.querySelector('iframe').contentDocument === null"), "neither reaches into the other"
    left, top, width, height = box(browser, "iframe")
    browser.open(file, int(width) - 2, int(height) - 2)
    x, y, wide, high = box(browser, 'nav a[href="#pipeline"]')
    browser.requests.clear()
    browser.open(notebook)
    requests = set(browser.requests)
    before = browser.call("Page.captureScreenshot", {"format": "png"})
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, left + 1 + x + wide / 2, top + 1 + y + high / 2, button="left", clickCount=1)
    browser.settle()
    assert browser.call("Page.captureScreenshot", {"format": "png"}) != before
    assert set(browser.requests) == requests
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_table_that_goes_on_has_a_shadow_at_its_edge(browser, file, tmp_path, dark):
    """Until its end is in sight."""
    browser.open(file, 390, 844, dark)
    browser.ask(
        "(wide = [...document.querySelectorAll('.scroll')].find(e => e.scrollWidth > e.clientWidth + 80)).id = 'wide';"
        "wide.scrollIntoView()"
    )
    left, top, width, _ = box(browser, "#wide")

    def edge() -> float:
        """How far the page is from its colour at the right edge of the caption, 0 to 1."""
        browser.settle()
        browser.picture(tmp_path / "seen.png", whole=False)
        row = image.imread(tmp_path / "seen.png")[int(top) + 8, :, :3]
        return float(abs(row[int(left + width) - 4] - row[int(left + width) - 30]).max())

    before = edge()
    browser.ask("wide.scrollLeft = wide.scrollWidth")
    assert before > 0.15 and edge() < 0.02
