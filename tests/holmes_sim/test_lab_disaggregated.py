"""Plans with two sets of ranks in the lab: tokens go over the shaped links."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

import holmes_sim as hs
from holmes_sim.lab.payload_rates import PayloadRates
from holmes_sim.lab.traffic import traffic_of
from sim.disaggregation.plan import DisaggregatedPlan
from sim.disaggregation.stage import DisaggregatedStage
from sim.formats import disaggregatedfile, documents, topology
from sim.plan.plan import MadeBy
from tests.holmes_sim.test_lab import refusal
from tests.more import more
from tests.two_rank_sets import FLEET, MODEL, NEW, OLD, plan

REFUSED = refusal() or ("" if find_spec("torch") else "torch is not installed")
SCALE = 4.0
"""Links are slower and compute takes longer by this factor."""


def slow_links() -> DisaggregatedPlan:
    """NICs of 1 Gbit/s, which carry the tokens of a microbatch in 8 ms; two ranks of each set."""
    text = FLEET.format(batch=4, model=MODEL.replace("hidden: 32", "hidden: 256")).replace("seq_len: 16", "seq_len: 512")
    where = topology.from_document(documents.parse("slow.yaml", text.replace("100 Gbit/s", "1 Gbit/s")))
    assert where.workload is not None
    return DisaggregatedPlan(DisaggregatedStage(where, where.workload, NEW, OLD), MadeBy("by hand", ""))


def test_its_traffic_is_that_of_both_sets():
    traffic = traffic_of(plan())
    assert [(group.kind, group.ranks) for group in traffic.groups] == [
        ("dispatch", (0, 1, 2)),
        ("combine", (0, 1, 2)),
        ("dp", (0, 1)),
    ]
    assert PayloadRates(plan()).kinds == ("roce",)


@more
@pytest.mark.skipif(bool(REFUSED), reason=f"THE LAB IS NOT TESTED HERE: {REFUSED}")
def test_no_step_is_faster_than_its_links(run, tmp_path):
    file = tmp_path / "split.json"
    file.write_text(disaggregatedfile.to_json(slow_links()), encoding="utf-8")
    seen = run("lab", file, "--steps", 1, "--scale", SCALE, "--json", "-o", tmp_path / "timeline.json")
    assert seen.code == 0, seen.err
    found = json.loads(seen.out)
    assert (found["format"], found["scale"], found["compute"]) == ("holmes-sim/disaggregated-run/1", SCALE, "paced")
    seconds = found["seconds"]
    assert seconds["step"]["measured"] >= 0.97 * seconds["step"]["simulated"]
    assert seconds["dispatches"]["simulated"] >= 0.25 * seconds["step"]["simulated"]
    assert seconds["dispatches"]["measured"] >= 0.5 * seconds["dispatches"]["simulated"], "from the last rank's begin on"
    assert hs.read(tmp_path / "timeline.json").origin == "measured"
