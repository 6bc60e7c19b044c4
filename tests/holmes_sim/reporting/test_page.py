"""The page: its numbers are the plan's, it needs nothing from anywhere, and it says what it left out."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import pytest

import holmes_sim as hs
from holmes_sim import commands, exporters, reporting
from holmes_sim.charts.style import numbers
from holmes_sim.exporters import csv
from holmes_sim.intervals import step_range
from holmes_sim.reporting import colours, sections, spans
from holmes_sim.reporting.drawing import Drawing, figure
from holmes_sim.results import Simulated
from planner import strategies
from sim.errors import Infeasible
from sim.formats import planfile
from sim.kernels import memory
from sim.units import GIBI
from tests import builders, corpus
from tests.builders import cluster, device, fleet
from tests.holmes_sim.reporting.reading import Page, actions, lookup, read


@pytest.fixture(scope="session")
def page(html) -> Page:
    return Page(html)


@pytest.fixture(scope="session")
def large() -> tuple[Simulated, str]:
    """768 devices, 48 virtual stages."""
    plan = next(plan for name, plan in corpus.plans("hethub-768") if name == "certified")
    found = reporting.gather(plan, ())
    return found.run, reporting.page(found)


def documents(study) -> dict[str, object]:
    """What the numbers of a page are looked up in."""
    plan = study.plan
    share = [peak / limit for peak, limit in zip(memory.peak_memory(plan), memory.limits(plan), strict=True)]
    return {
        "plan": planfile.facts(plan),
        "explanation": commands.explain(commands.simulate(plan)).facts(),
        "comparison": study.compared.facts(),
        "pipeline_ranks": [
            {"compute": p.compute, "exposed": p.exposed, "bubble": p.bubble} for p in commands.simulate(plan).pipeline_ranks
        ],
        "memory": [{"share": value} for value in share],
        "layers": [stage.layers for stage in plan.stages],
    }  # fmt: skip


# numbers


def faults(page: Page, known: dict[str, object]) -> list[str]:
    """Numbers that are not those of their documents, or do not read so."""
    found = []
    for of, elements in page.numbers.items():
        fact = lookup(known, of)
        for element in elements:
            shown, half = read(element.text)
            if float(element.attributes["value"]) != fact or abs(shown - fact) > half * (1 + 1e-9):
                found.append(f"{of}: {fact} is {element.attributes['value']}, shown as {element.text}")
    return found


def test_every_number_is_the_one_of_its_document_and_reads_so(page, study):
    assert len(page.numbers) > 90
    assert faults(page, documents(study)) == []


def test_a_wrong_number_is_seen(html, study):
    known, (step,) = documents(study), set(re.findall(r'prediction/step_s">(.*?)<', html))
    assert step == "8.955 s"
    assert len(faults(Page(html.replace(f'prediction/step_s">{step}<', 'prediction/step_s">9.122 s<')), known)) == 1
    known["plan"] = known["plan"] | {"prediction": known["plan"]["prediction"] | {"mfu": 0.5}}
    assert [fault.split(":")[0] for fault in faults(Page(html), known)] == ["plan/prediction/mfu"]


def test_all_that_the_plan_promises_and_proves_is_on_the_page(page, study):
    facts = planfile.facts(study.plan)
    predicted = {f"plan/prediction/{key}" for key, value in facts["prediction"].items() if isinstance(value, float)}
    predicted |= {f"plan/prediction/peak_memory_bytes/{pp_rank}" for pp_rank in range(2)}
    predicted |= {f"plan/certificate/{key}" for key in ("objective_s", "lower_bound_s", "gap", "mixed_lower_bound_s")}
    assert len(predicted) == 9 + 2 + 4
    assert predicted <= page.numbers.keys()
    rows = {f"comparison/rows/{row}/{key}" for row in range(2) for key in ("step_s", "samples_per_s", "upper_bound_fraction")}
    assert rows <= page.numbers.keys()


def test_the_space_of_the_certificate_is_a_table(page, planned):
    text = page.one("section", id="certificate").text
    assert all(axis.name in text for axis in planned.certificate.space)
    assert all(text in text for text in planned.certificate.outside)
    silent = planned.annotated(certificate=replace(planned.certificate, space=(), outside=()))
    assert "Searched" not in Page(reporting.page(reporting.gather(silent, ()))).one("section", id="certificate").text


def test_the_page_shows_the_range_of_each_step(page, planned, study):
    """The tile of the step, and the table of strategies with the range of each."""
    expected = step_range(planned.prediction.step_s, planned).text
    assert f"</data>, 80 % range {expected}</dd>" in page.html
    rows = [step_range(prediction.step_s, plan).text for _, plan, prediction in study.compared.ranked]
    assert all(text in page.one("section", id="strategies").text for text in rows) and expected in rows


def test_a_prediction_of_another_version_is_reported(planned):
    prediction = replace(planned.prediction, step_s=2 * planned.prediction.step_s)
    page = Page(reporting.page(reporting.gather(planned.annotated(prediction=prediction), ())))
    assert float(page.numbers["plan/prediction/step_s"][0].attributes["value"]) == prediction.step_s
    assert "The plan predicts " in page.one("section", id="warnings").text


# the timeline


def test_the_timeline_of_two_stages_action_by_action():
    """1F1B on two devices that compute in no time but their own: the first stage runs one microbatch ahead."""
    plan = builders.plan(fleet(cluster(nodes=2)), pp=2, microbatches=2, zero_stage=0)
    first, last = actions(Page(reporting.page(reporting.gather(plan, ()))).spans)
    computed = [(words, stage, microbatch) for words, kind, stage, microbatch, _, _ in first if kind in "FB"]
    assert computed == [("forward", 0, 0), ("forward", 0, 1), ("backward", 0, 0), ("backward", 0, 1)]
    computed = [(words, stage, microbatch) for words, kind, stage, microbatch, _, _ in last if kind in "FB"]
    assert computed == [("forward", 1, 0), ("backward", 1, 0), ("forward", 1, 1), ("backward", 1, 1)]
    assert {words for words, kind, *_ in first if kind == "send"} == {"activations sent to the next stage"}
    assert {words for words, kind, *_ in last if kind == "send"} == {"gradients sent to the previous stage"}


def test_rows_have_the_seconds_of_the_simulated_ranks(large):
    """Computing, tensor-parallel collectives and waiting of every row, in nanoseconds, are those of the rank it is."""
    run, html = large
    spans = run.timeline.by_rank()
    rows = actions(Page(html).spans)
    assert len(rows) == len(run.timeline.alike) == 12
    for group, row in zip(sorted(run.timeline.alike), rows, strict=True):
        for kind in ("F", "B", "bubble", "optimizer"):
            shown = sum(end - start for _, drawn, _, _, start, end in row if drawn == kind)
            assert shown == pytest.approx(1e9 * sum(s.seconds for s in spans[group[0]] if s.kind == kind), abs=len(row)), kind
        shown = sum(
            end - start for _, drawn, _, _, start, end in row if drawn in ("F", "B", "optimizer", "bubble", "tp", "exposed")
        )
        assert shown == pytest.approx(1e9 * run.timeline.step_s, abs=len(row)), "a row is busy or waits all step long"


def test_a_large_plan_stays_small_and_says_what_was_folded(large):
    html = large[1]
    assert len(html.encode()) < 3_000_000
    assert "768 ranks form 12 classes of equivalent ranks" in Page(html).one("section", id="pipeline").text


def test_of_too_many_spans_some_rows_are_shown(large, monkeypatch):
    run = large[0]
    monkeypatch.setattr(spans, "MOST_SPANS", 35_000)
    rows = spans.rows_to_draw(run)
    assert [group[0] // 64 for group in rows] == [0, 2, 4, 6, 8, 11], "pipeline ranks that lie evenly, both ends among them"
    monkeypatch.setattr(spans, "MOST_SPANS", 1)
    assert [group[0] // 64 for group in spans.rows_to_draw(run)] == [0, 11]


# what to doubt


def doubts(plan) -> str:
    return Page(reporting.page(reporting.gather(plan, ()))).one("section", id="warnings").text


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.88, None), (0.93, "(93.0%), within 10% of the limit."), (1.02, "(102.0%), more than its device has.")],
)
def test_memory_near_the_limit_is_reported(share, words):
    def plan(size: float):
        return builders.plan(fleet(cluster(spec=device(memory=size))))

    (peak,) = memory.peak_memory(plan(80e9))
    found = doubts(plan(peak / share))
    assert ("Memory of stage 0: " in found) == (words is not None)
    if words:
        assert f"Memory of stage 0: {peak / GIBI:.4g} of {peak / share / GIBI:.4g} GiB {words}" in found


def test_what_nobody_measured_is_reported(large, planned):
    warnings = Page(large[1]).one("section", id="warnings").text
    assert "mi250x: the efficiency of matrix products and the attention core is extrapolated, not measured." in warnings
    assert "infinity-fabric-3: the share of its rate that payload reaches is a guess." in warnings
    assert "between MI300X (0.47) and A100 (0.79)" in warnings, "and what it rests on"
    warnings = doubts(planned)
    assert "roce: the share of its rate that payload reaches is partly a guess." in warnings
    assert "a100" not in warnings


def test_products_too_small_for_the_curves_are_reported():
    warnings = doubts(builders.plan(fleet(cluster())))
    assert "Matrix products smaller than the fitted sizes (1024 x 512 x 512); their efficiency is extrapolated: " in warnings
    assert "up 64 x 384 x 96" in warnings


def test_idle_devices_are_reported():
    assert "2 of 3 devices are idle." in doubts(builders.plan(fleet(cluster(devices=3))))


# strategies


def test_a_plan_for_its_energy_is_held_against_others_by_energy_too(planned):
    proof = replace(
        planned.certificate, objective="energy", lower_bound_per_token=planned.prediction.joules_per_token / 2, gap=0.5
    )
    page = Page(reporting.page(reporting.gather(planned.annotated(certificate=proof), ("megatron",), 1.0)))
    assert f"{planned.prediction.joules_per_token:.4g} J per token" in page.one("section", id="strategies").text
    assert "of this plan's energy could be saved" in page.one("section", id="certificate").text


def test_a_strategy_without_a_plan_says_why(planned, monkeypatch):
    def no_plan(question, context):
        raise Infeasible("holmes: nothing fits")

    monkeypatch.setattr(strategies, "get", lambda name: SimpleNamespace(plan=no_plan))
    page = Page(reporting.page(reporting.gather(planned, ("holmes",), 1.0)))
    assert "no plan: nothing fits" in page.one("section", id="strategies").text


def test_the_plans_own_strategy_does_not_run_again(planned):
    assert reporting.gather(planned, ("certified",), 1.0).compared is None


# launches


def test_every_target_has_its_line_or_its_reason(planned, monkeypatch):
    monkeypatch.setattr(
        csv, "unsupported_placement", lambda plan: iter(["tp 2: a table has no second dimension; tp 1 would do"])
    )
    page = Page(reporting.page(reporting.gather(planned, (), file="my plans/plan.json")))
    launch = page.one("section", id="launch").text
    assert "csv cannot express tp 2: a table has no second dimension; tp 1 would do" in launch
    assert "--to csv" not in launch
    for name in set(exporters.names()) - {"csv"}:
        assert f"holmes-sim export 'my plans/plan.json' --to {name} -o launch" in launch or f"{name} cannot express" in launch
    (line,) = re.findall(r"^bash .*$", exporters.get("torchrun").launch(planned).how, re.MULTILINE)
    assert line in [element.text for element in page.all("code")], "how it goes on"
    assert "Hosts of ib are called ib-node0, ib-node1 ...: say clusters.ib.hosts in the topology." in launch


def test_no_launch_of_a_large_plan_is_made_for_the_report(large):
    launch = Page(large[1]).one("section", id="launch").text
    assert "--to torchrun -o launch" in launch and "bash" not in launch
    assert "launch/README.md says how to launch" in launch


# the page as a page


def test_the_page_needs_nothing_from_anywhere(page):
    for element in page.elements:
        for key in ("src", "href", "srcset", "action", "data"):
            target = element.attributes.get(key, "#")
            assert target.startswith(("#", "data:,")), f"<{element.tag} {key}={target}>"
    for element in page.all("style") + page.all("script"):
        assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|https?://", element.text)
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert policy.startswith("default-src 'none';")


def test_names_are_text_and_never_markup():
    plan = builders.plan(fleet(cluster(name="a")))
    name = "</script><b>&\"'"
    named = replace(plan, topology=replace(plan.topology, name=name))
    page = Page(reporting.page(reporting.gather(named, (), file=name)))
    assert page.one("h1").text == f"tiny on {name}"
    assert len(page.all("script")) == 2 and page.all("b") == []


def test_the_page_can_be_read_without_eyes_or_mouse(page):
    assert page.one("html").attributes["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert [h.text for h in page.all("h2")] == [section.TITLE for section in sections.in_order()]
    assert [a.attributes["href"][1:] for a in page.all("a")] == [section.NAME for section in sections.in_order()]
    assert all(button.attributes.get("aria-label") or len(button.text) > 1 for button in page.all("button"))
    assert len(page.all("button")) == 5
    canvas = page.one("canvas")
    assert canvas.attributes["tabindex"] == "0" and "Arrow keys" in canvas.attributes["aria-label"]
    assert len(page.all("caption")) == len(page.all("table")) > 4
    (figure,) = page.all("figure")
    assert "ib: stages 0; roce: stages 1" in figure.attributes["aria-label"]


def test_the_same_plan_gives_the_same_bytes(planned, html):
    assert reporting.page(reporting.gather(planned, ("megatron",), 1.0)) == html


def themes() -> list[dict[str, str]]:
    """Custom properties of style.css, by day and by night."""
    text = (files("holmes_sim.reporting") / "style.css").read_text()
    day, night = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    )
    assert day.keys() == night.keys()
    return [day, night]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_words_have_contrast_of_level_aa(theme):
    """WCAG 2.2, 1.4.3: 4.5 to 1 for text."""
    for ink in ("text", "muted", "accent"):
        for ground in ("page", "panel"):
            assert colours.contrast(theme[ink], theme[ground]) >= 4.5, f"{ink} on {ground}"
    assert colours.contrast(theme["warn-text"], theme["warn"]) >= 4.5


def test_contrast_is_that_of_the_standard():
    assert colours.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_every_colour_has_an_ink_that_reads(page):
    properties = dict(re.findall(r"--([a-zA-Z0-9-]+):(#[0-9A-Fa-f]{6})", colours.css(24, 4)))
    inked = [name for name in properties if f"{name}-ink" in properties]
    assert len(inked) > 60
    for name in inked:
        assert colours.contrast(properties[name], properties[f"{name}-ink"]) >= 4.5, name


# in a notebook


def test_a_report_is_the_page_and_can_be_written(planned, tmp_path):
    found = hs.report(planned, names=())
    assert found == reporting.page(reporting.gather(planned, ()))
    hs.write(tmp_path / "report.html", found)
    assert (tmp_path / "report.html").read_text() == str(found)
    kept = f"a page of {len(found.encode()) / 1024:,.0f} KiB; hs.write('report.html', page) saves it"
    assert repr(found) == f"gpt-3.6b on holmes-hybrid-4: {kept}"


def test_a_notebook_shows_the_page_whole_in_a_frame_that_reaches_nothing_else(html):
    frame = Page(html._repr_html_()).one("iframe").attributes
    assert frame["sandbox"] == "allow-scripts", (
        "its script runs, and without allow-same-origin it is a stranger to the notebook"
    )
    assert frame["srcdoc"].replace('<base href="about:srcdoc">', "") == html


# the command


def test_the_command_writes_the_page(run, planned, tmp_path):
    (tmp_path / "plan.json").write_text(planfile.to_json(planned))
    seen = run("report", tmp_path / "plan.json", "-o", tmp_path / "report.html", "--strategies", "none")
    assert (seen.code, seen.out) == (0, "")
    assert seen.err == f"Written to {tmp_path / 'report.html'}.\n"
    page = Page((tmp_path / "report.html").read_text())
    assert page.one("h1").text == "gpt-3.6b on holmes-hybrid-4"
    assert page.all("section", id="strategies") == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "report.html", "--strategies", "holms"), "error: strategy 'holms' is unknown; "),
        (("-o", "none/report.html"), "error: none/report.html: cannot be written: No such file or directory"),
        (("-o", "plan.json"), "error: plan.json: given twice; it would be overwritten"),
        (("-o", "report.pdf"), "error: report.pdf: the file name of a page must end in .html, not in .pdf"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line_before_the_work(run, planned, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(planfile.to_json(planned))
    monkeypatch.setattr(commands, "simulate", lambda plan: pytest.fail("work was begun"))
    seen = run("report", "plan.json", *options)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(words) and seen.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_the_table_of_stages_has_the_degrees_that_differ():
    machines = fleet(cluster(nodes=6))
    plan = builders.plan(machines, pp=2, dp=2, microbatches=2, stage_dp=(2, 4), microbatch_size=2)
    rows = sections.stages.stages(plan, commands.simulate(plan).pipeline_ranks, memory.peak_memory(plan))
    assert re.findall(r"<th[^>]*>([^<]*)</th>", rows)[3:7] == ["device", "dp", "mb", "layers"]
    assert re.findall(r"<td[^>]*>(\d)</td>", rows) == ["2", "2", "4", "1"]


@pytest.mark.parametrize(("name", "is_list"), [("sailor-geo-160", True), ("hexiscale-b-32", False)])
def test_trunks_of_many_clusters_are_a_list_below_them(name: str, is_list: bool):
    """Of more than four clusters, no trunk stands in the row of the last clusters."""
    found = figure(Drawing(commands.load(f"peers/{name}").fleet))
    assert ('<div class="trunks">' in found) == is_list
    assert found.index('class="trunk"') > found.rindex('class="cluster"')


@pytest.mark.parametrize(("layers", "text"), [((0, 12), "0-11"), ((37, 38), "37"), ((0, 0), "none")])
def test_layers_of_a_stage_in_words(layers: tuple[int, int], text: str):
    assert numbers(*layers) == text
