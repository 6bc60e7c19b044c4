"""The page of a plan of islands: its numbers are the plan's, its headline says what is given up, its chart is the timeline."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import holmes_sim as hs
from holmes_sim import reporting
from holmes_sim.islands import simulate_islands
from holmes_sim.reporting import islands_contents, islands_sections
from holmes_sim.reporting.islands_sections import outer_period
from sim.errors import OptionError
from sim.formats import islandsfile
from sim.kernels import memory
from sim.plan.certificate import Axis, Certificate
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy
from sim.sync import Sync
from tests.holmes_sim.reporting.reading import Page, lookup, read
from tests.island_plans import island

PROOF = Certificate(
    status="feasible",
    objective_s=2.0,
    lower_bound_s=1.5,
    gap=0.25,
    solver="closed form",
    time_limit_reached=False,
    space=(Axis("islands", ("east: batch 16 | west: batch 8", "east: batch 12 | west: batch 12")),),
)


@pytest.fixture(scope="module")
def plan(uneven_islands) -> IslandsPlan:
    return uneven_islands


@pytest.fixture(scope="module")
def contents(plan):
    return reporting.gather_islands(plan, "my plans/islands.json")


@pytest.fixture(scope="module")
def page(contents) -> Page:
    return Page(reporting.islands_page(contents))


def text_of(page: Page, name: str) -> str:
    return page.one("section", id=name).text


def rows_of(page: Page, name: str) -> list[list[str]]:
    """Cells of the body of the first table of a section."""
    section = page.html.split(f'<section id="{name}">')[1].split("</section>")[0]
    body = section.split("<tbody>")[1].split("</tbody>")[0]
    cells = (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.split("</tr>")[:-1])
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells]


def documents(contents) -> dict[str, object]:
    """What the numbers of the page are looked up in."""
    own = []
    for step in contents.steps:
        share = [a / b for a, b in zip(memory.peak_memory(step.plan), memory.limits(step.plan), strict=True)]
        times = [{"compute": p.compute, "exposed": p.exposed, "bubble": p.bubble} for p in step.pipeline_ranks]
        own.append({
            "plan": {"prediction": {"peak_memory_bytes": memory.peak_memory(step.plan)}},
            "memory": [{"share": value} for value in share],
            "layers": [stage.layers for stage in step.plan.stages],
            "pipeline_ranks": times,
        })  # fmt: skip
    run = simulate_islands(contents.plan)
    facts = islandsfile.facts(contents.plan.annotated(run.prediction))
    effective = run.prediction.tokens_per_s * run.worth.expected
    return {"plan": facts, "simulation": run.facts(), "islands": own, "effective": {"tokens_per_s": effective}}


def test_every_number_is_the_one_of_its_document_and_reads_so(page, contents):
    known = documents(contents)
    assert len(page.numbers) == 36
    for of, elements in page.numbers.items():
        for element in elements:
            shown, half = read(element.text)
            assert float(element.attributes["value"]) == lookup(known, of), of
            assert shown == pytest.approx(lookup(known, of), abs=half * (1 + 1e-9)), of


def test_the_sections_are_in_the_order_of_the_page(page):
    titles = ["Topology and islands", "Islands", "Outer period", "Warnings", "Stages of each island", "How to launch"]
    assert [section.TITLE for section in islands_sections.in_order()] == titles
    assert [h.text for h in page.all("h2")] == titles
    links = [a.attributes["href"] for a in page.all("a")]
    assert links == ["#placement", "#islands", "#outer-period", "#warnings", "#stages", "#launch", "#island-0", "#island-1"]
    ids = {element.attributes["id"] for element in page.elements if "id" in element.attributes}
    assert {link[1:] for link in links} <= ids


def test_the_headline_says_what_is_given_up_and_what_launches_the_islands(page):
    assert page.one("h1").text == "llama-3-8b on two-sites"
    assert [dt.text for dt in page.all("dt")] == [
        "tokens/s", "a token is worth", "effective tokens/s", "MFU", "outer period", "exchanges on the network",
        "slowest island waits for them", "highest memory use", "Gives up", "Certificate", "Launched",
    ]  # fmt: skip
    *_, gives_up, proof, launched = [dd.text for dd in page.all("dd")]
    assert gives_up.startswith(
        "Not the result of synchronous training: islands differ for a bounded number of steps, or send rounded values. "
        "Worth of a token: the tokens of synchronous training with the same loss (arXiv 2503.09799"
    )
    assert proof == "None. Plans of holmes-sim plan --sync have one."
    assert launched == "By torchrun; not by torchtitan, prime (export --to NAME says why)."


def test_the_certificate_is_a_sentence(plan):
    proven = Page(hs.report(replace(plan, certificate=PROOF)))
    assert proven.all("dd")[-2].text == (
        "With this sync strategy, no searched islands take less than 1.5 s for an inner step and its part of the exchanges "
        "(2 s here): at most 25.0% could be saved. Searched: east | west; 2 divisions of the batch in all; for each island the "
        "space of plan."
    )


def test_what_is_unknown_or_never_is_said(plan):
    alone = Page(hs.report(replace(plan, sync=Sync("independent"))))
    values = dict(zip([dt.text for dt in alone.all("dt")], [dd.text for dd in alone.all("dd")], strict=True))
    assert values["a token is worth"] == values["effective tokens/s"] == "unknown"
    assert values["slowest island waits for them"] == "never"
    assert values["Gives up"].startswith(
        "Another objective than synchronous training; islands do not become one model. What a "
    )
    assert "between islands" not in text_of(alone, "outer-period")
    robust = Page(hs.report(replace(plan, sync=Sync("local-sgd", 30, aggregation="median"))))
    shown = [dd.text for dd in robust.all("dd")]
    assert "0 of 2; 3 islands withstand one" in shown
    assert "as of the mean of 2 of 2 islands" in shown


def test_devices_have_the_number_and_colour_of_their_island(page):
    squares = re.findall(r"<g><title>([^<]*)</title><rect [^>]*fill=\"var\(--(\w+)\)\"/>", page.html)
    assert len(squares) == 32
    assert squares[0] == ("east/node0/dev0: island 0, rank 0, stage 0", "i0")
    assert squares[23] == ("west/node0/dev7: island 1, rank 7, stage 1", "i1")
    assert squares[31] == ("west/node1/dev7: idle", "idle")
    assert "east: islands 0; west: islands 1" in page.one("figure").attributes["aria-label"]
    assert "idle: 8 devices" in text_of(page, "placement")


def test_an_island_is_a_row(page):
    east, west = rows_of(page, "islands")
    assert east[:5] == ["0", "east", "16 a100-sxm4-80gb", "16", "tp 1, pp 1, dp 16, mb 1, recompute full, 1f1b"]
    assert west[:5] == ["1", "west node 0", "8 a100-sxm4-80gb", "8", "tp 1, pp 2, dp 4, mb 1, recompute full, 1f1b"]
    assert (east[6], east[8]) == ("–", "3.74 GiB")
    assert west[6].endswith(" s") and west[8] == "7.48 GiB"


def test_the_stages_of_each_island_are_a_table(page):
    assert [c.text for c in page.all("caption")] == ["Islands", "Stages of island 0", "Stages of island 1"]
    assert [h.text for h in page.all("h3") if h.attributes.get("id")] == ["0 Island 0: east", "1 Island 1: west node 0"]


def test_bars_of_the_chart_are_the_spans_of_the_timeline(page, contents):
    """Each island is busy or waits all the time; its bars end where an outer period ends."""
    lanes = page.html.split('<div class="lane">')[1:]
    found = [
        re.findall(r'class="part o-(\w+)" style="left:([\d.]+)%;width:([\d.]+)%"', lane.split("</div>")[0]) for lane in lanes
    ]
    assert [[kind for kind, _, _ in lane] for lane in found] == [
        ["steps", "exchange"] * 2,
        ["steps", "wait", "exchange"] * 2,
        ["network"] * 2,
    ]
    for lane in found[:2]:
        assert sum(float(width) for _, _, width in lane) == pytest.approx(100, abs=0.01)
    inner = contents.prediction.inner_step_s[0]
    assert float(found[0][0][2]) == pytest.approx(100 * 30 * inner / (2 * contents.prediction.period_s), abs=0.01)
    assert 'title="30 steps: 0 s to ' in lanes[0]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [(450.8, [0, 100, 200, 300, 400]), (1.0, [0, 0.2, 0.4, 0.6, 0.8]), (113.6, [0, 50, 100]), (24, [0, 5, 10, 15, 20])],
)
def test_ticks_are_round(whole, expected):
    assert outer_period._ticks(whole) == pytest.approx(expected)


def test_a_prediction_of_another_version_is_reported(plan, contents):
    other = replace(contents.prediction, period_s=100.0)
    page = Page(hs.report(plan.annotated(other)))
    assert "The plan predicts 100 s per outer period, but its simulation gives 56.8" in text_of(page, "warnings")
    same = Page(hs.report(plan.annotated(contents.prediction)))
    assert "The plan predicts" not in text_of(same, "warnings")
    assert "Island 0: Host memory of east: outer state takes 29.92 GiB on its fullest host" in text_of(same, "warnings")


def test_targets_have_their_line_or_their_reason(page, plan, monkeypatch):
    launch = text_of(page, "launch")
    assert "holmes-sim export 'my plans/islands.json' --to torchrun -o launch" in launch
    assert "prime cannot express islands[0].hosts east-node0, east-node1: an island is one host; islands of one host" in launch
    monkeypatch.setattr(islands_contents, "MOST", 23)
    assert reporting.gather_islands(plan).targets == ()


def test_the_page_needs_nothing_from_anywhere(page):
    for element in page.elements:
        for key in ("src", "href", "srcset", "action", "data"):
            assert element.attributes.get(key, "#").startswith(("#", "data:,"))
    assert page.all("script") == []


def test_a_report_in_python_and_in_a_notebook(plan, contents):
    found = hs.report(plan)
    assert found == reporting.islands_page(replace(contents, file="islands.json"))
    assert repr(found).startswith("llama-3-8b on two-sites: a page of ")
    frame = Page(found._repr_html_()).one("iframe").attributes
    assert frame["srcdoc"].replace('<base href="about:srcdoc">', "") == found
    with pytest.raises(OptionError, match="a plan of islands is compared with no strategies"):
        hs.report(plan, ("alpa",))


def test_the_command_writes_the_page(run, plan, tmp_path):
    file, target = tmp_path / "islands.json", tmp_path / "page.html"
    file.write_text(islandsfile.to_json(plan))
    seen = run("report", file, "-o", target)
    assert (seen.code, seen.out, seen.err) == (0, "", f"Written to {target}.\n")
    assert Page(target.read_text()).one("h1").text == "llama-3-8b on two-sites"
    for more in (("--strategies", "all"), ("--profile", "a100")):
        seen = run("report", file, "-o", target, *more)
        line = f"error: {file}: the report of a plan of islands takes no --strategies and --profile\n"
        assert (seen.code, seen.err) == (2, line)


def test_names_are_text_and_never_markup(plan):
    name = "</style><b>&\"'"
    named = tuple(replace(one, topology=replace(one.topology, name=name)) for one in plan.islands)
    page = Page(hs.report(IslandsPlan(plan.sync, named, MadeBy(name, "1"))))
    assert page.one("h1").text == f"llama-3-8b on {name}"
    assert [b.text for b in page.all("b")] == ["east – west"]


def test_islands_on_one_cluster_each_with_alike_plans_never_wait():
    alike = IslandsPlan(Sync("every-step"), (island("east"), island("west")), MadeBy("by hand", "1"))
    page = Page(hs.report(alike))
    assert [row[6] for row in rows_of(page, "islands")] == ["–", "–"]
    assert "the same result as synchronous training, up to rounding" in page.html.lower()
    assert page.numbers["simulation/token_worth/expected"][0].text == "1"
