"""The addresses of the page: who may ask, edits, files, and a search from its start to its plan."""

from __future__ import annotations

import json
import re
import time

import pytest

from holmes_sim.serving import app, search, security
from holmes_sim.serving.page import State
from sim.formats import planfile
from tests.holmes_sim.serving import pretended
from tests.holmes_sim.serving.visiting import TOKEN, Site


@pytest.fixture(scope="module")
def start(site) -> str:
    return site.begin.address()


@pytest.fixture(scope="module")
def planned(site, start) -> str:
    """The address of a state with a plan, which a search of two seconds found."""
    answer = site.post(f"{site.begin.address('plan')}", {"time_limit": 2})
    assert answer.status == 303
    return site.followed(answer.location)


def errors(answer) -> list[str]:
    alert = re.search(r'role="alert">(.*?)</div>', answer.text, re.DOTALL)
    return re.findall("<p>(.*?)</p>", alert[1]) if alert else []


def test_nobody_gets_in_without_the_token(site, start):
    for path in ("/", start, "/style.css", "/topologies/0123456789abcdef", "/?token=wrong"):
        answer = site.get(path, cookie="")
        assert (answer.status, answer.text) == (403, security.FORBIDDEN)
    assert site.post(site.begin.address("edit"), {}, cookie="").status == 403


def test_the_address_with_the_token_sets_a_strict_cookie(site):
    answer = site.get(f"/?token={TOKEN}", cookie="")
    assert answer.status == 200 and 'content="0;url=/"' in answer.text
    assert re.fullmatch(rf"holmes-sim-[0-9a-f]{{8}}={TOKEN}; HttpOnly; Path=/; SameSite=strict", answer.headers["set-cookie"])
    assert site.get("/").location == site.begin.address()


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org:80", "0.0.0.0"])
def test_another_host_name_is_refused(site, start, host):
    assert site.get(start, host=host).status == 400
    assert site.get(start, host=f"localhost:{site.port}").status == 200


def test_forms_of_other_pages_are_refused(site):
    edit = site.begin.address("edit")
    assert site.post(edit, {}, origin="http://127.0.0.1:1").status == 403
    assert site.post(edit, {}, origin="null").status == 403
    assert site.post(edit, {}, origin=site.address).status == 303


def test_a_body_has_a_limit(site):
    assert site.upload(site.begin.address("upload"), "a.yaml", b"#" * (security.LARGEST_BODY + 1)).status == 413


def test_answers_have_headers_that_keep_other_pages_out(site, start):
    headers = site.get(start).headers
    assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
    assert (
        "frame-ancestors 'none'" in headers["content-security-policy"]
        and "script-src 'self';" in headers["content-security-policy"]
    )


def test_an_edit_leads_to_another_state_and_its_file(site, start):
    answer = site.post(site.begin.address("edit"), {"set": "clusters.east.nodes=3", "links[0].bandwidth": "20"})
    assert answer.status == 303 and answer.location != start
    file = site.get(answer.location.replace("/t/", "/topologies/"))
    assert file.headers["content-disposition"] == 'attachment; filename="lab-slow-trunk.yaml"'
    assert "nodes: 3" in file.text and "bandwidth: 10 Gbit/s" in file.text
    assert site.upload(site.begin.address("upload"), "kept.yaml", file.body).location == answer.location, (
        "the file is the state"
    )


def test_a_wrong_edit_is_said_on_the_page_and_changes_nothing(site, start):
    answer = site.post(site.begin.address("edit"), {"clusters.east.nodes": "none"})
    assert (answer.status, errors(answer)) == (
        422,
        ["clusters.east.nodes: &#39;none&#39; is not a whole number from 1 to 10000"],
    )
    assert 'name="clusters.east.nodes" value="2"' in answer.text


def test_a_wrong_file_is_said_with_its_line(site):
    answer = site.upload(site.begin.address("upload"), "../<b>.yaml", b"format: holmes-sim/topology/1\nname: x\nclusters: {}\n")
    assert answer.status == 422
    assert errors(answer)[0].startswith("&lt;b&gt;.yaml:3: clusters: ")


def test_only_digests_of_the_folder_are_files(site):
    (site.folder / "secret.yaml").write_text("name: secret\n")
    for path in (
        "/t/0123456789abcdef",
        "/t/..%2fsecret",
        "/topologies/secret",
        "/plans/%2e%2e",
        "/plans/0123456789abcdef/report",
    ):
        assert site.get(path).status == 404
    assert site.get("/searches/00000000/events").status == 404


def test_a_shipped_topology_is_opened_by_name(site):
    assert "holmes-hybrid-4</h1>" in site.get(site.post("/open", {"name": "holmes-hybrid-4"}).location).text
    assert site.post("/open", {"name": str(site.folder / "secret")}).status == 404


def test_a_search_ends_with_a_plan(site, planned):
    digest = re.fullmatch(r"/t/[0-9a-f]{16}\?plan=([0-9a-f]{16})", planned)[1]
    page = site.get(planned).text
    assert "Keep beside" in page and "stage 0" in page
    file = site.get(f"/plans/{digest}")
    assert file.headers["content-disposition"] == 'attachment; filename="lab-slow-trunk-plan.json"'
    plan = planfile.from_text("plan.json", file.text)
    assert plan.topology.workload.model.name == "lab-gpt" and plan.certificate is not None
    assert site.upload(site.begin.address("upload"), "plan.json", file.body).location == planned, "the file is the state"


def test_a_report_cannot_reach_the_server(site, planned):
    answer = site.get(f"/plans/{planned.rpartition('=')[2]}/report")
    assert "<h2>Where the step time goes</h2>" in answer.text
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")


def test_two_plans_stand_side_by_side(site, two_plans):
    plan, beside = (site.store.keep_plan(one) for one in two_plans)
    page = site.get(State(site.begin.topology, plan, beside).address()).text
    assert re.search(r"microbatch size</td><td><mark>1</mark></td><td><mark>2</mark></td>", page)
    assert re.search(r">dp</td><td>2</td><td>2</td>", page)
    assert f"?plan={beside}&amp;beside={plan}" in page, "swap"
    one = site.get(State(site.begin.topology, plan, plan).address()).text
    assert "the next plan is shown next to this one" in one and "<mark>" not in one


def test_a_plan_of_another_topology_is_called_so(site, two_plans):
    plan = site.store.keep_plan(two_plans[0])
    edited = site.post(State(site.begin.topology, plan).address("edit"), {"set": "clusters.west.nodes=3"}).location
    page = site.get(edited).text
    assert "Plan: for a topology or workload other than the one shown." in page
    assert f'<a href="/t/{site.begin.topology}?plan={plan}">' in page and "stage 0" not in page


def test_stop_keeps_the_best_plan(site, two_plans, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "COMMAND", pretended.with_plan(tmp_path, two_plans[1], until_stopped=True))
    running = site.post(site.begin.address("plan"), {"time_limit": 600}).location
    page = site.get(running).text
    assert "Stop and keep the best plan" in page and "seconds of 600" in page
    time.sleep(1)
    page = site.get(running).text
    assert '<data data-show="step">1.25 s</data>' in page and '<data data-show="gap">20.0%</data>' in page
    assert '<td>0.5 s</td><td>2 s</td><td class="words">estimating layouts</td></tr><tr><td>1.5 s</td>' in page
    assert site.post(running.replace("?", "/stop?"), {}).location == running
    assert site.followed(running) == State(site.begin.topology, site.store.keep_plan(two_plans[1])).address()


def test_improvements_are_events(site, two_plans, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "COMMAND", pretended.with_plan(tmp_path, two_plans[1], until_stopped=False))
    running = site.post(site.begin.address("plan"), {"time_limit": 5}).location
    events = site.get(f"/searches/{running.rpartition('=')[2]}/events")
    assert events.headers["content-type"].startswith("text/event-stream")
    *found, over = events.text.removesuffix("\n\n").split("\n\n")
    assert over == "event: over\ndata: {}"
    last = json.loads(found[-1].removeprefix("data: "))
    assert last | {"seconds": "1"} == {
        "step": "1.25 s", "bound": "1 s", "gap": "20.0%", "activity": "2 layouts settled", "seconds": "1",
        "found": [["0.5 s", "2 s", "estimating layouts"], ["1.5 s", "1.25 s", "2 layouts settled"]],
    }  # fmt: skip


def test_a_new_search_ends_the_old_one(site, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "COMMAND", pretended.program(tmp_path, "time.sleep(600)"))
    plan = site.begin.address("plan")
    old, new = (site.post(plan, {"time_limit": 600}).location for _ in range(2))
    assert old != new and "data-events" not in site.get(old).text and "data-events" in site.get(new).text
    site.post(site.begun(new).replace("?", "/stop?"), {})
    assert errors(site.get(site.followed(new))) == ["Stopped before a plan was found."]


def test_why_there_is_no_plan_is_said_on_the_page(site, tmp_path, monkeypatch):
    text = "sys.stderr.write('error: no plan fits: a device lacks 3 GiB\\nerror: use more nodes\\n'); sys.exit(3)"
    monkeypatch.setattr(search, "COMMAND", pretended.program(tmp_path, text))
    page = site.get(site.followed(site.post(site.begin.address("plan"), {"time_limit": 2}).location))
    assert errors(page) == ["no plan fits: a device lacks 3 GiB", "use more nodes"]
    answer = site.post(site.begin.address("plan"), {"time_limit": "soon"})
    assert errors(answer) == ["seconds to plan: &#39;soon&#39; is not a whole number from 1 to 3600"]


def test_the_end_of_the_server_ends_its_search(topology, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(app, "Search", lambda *given: type("Running", (), {"name": "1", "end": lambda self: ended.append(1)})())
    site = Site(tmp_path, topology)
    site.enter()
    site.post(site.begin.address("plan"), {"time_limit": 2})
    site.close()
    assert ended == [1]
