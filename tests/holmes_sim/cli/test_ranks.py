"""What is said of the network of a run on one machine."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from holmes_sim.cli import ranks
from holmes_sim.lab.load import Load
from holmes_sim.running import InLab
from holmes_sim.torch_backend.run_options import RunOptions
from tests import builders as make


def test_only_messages_between_hosts_miss_the_links_of_the_plan():
    one = make.plan(make.fleet(make.cluster(devices=2)), pp=2)
    two = make.plan(make.fleet(make.cluster(nodes=2)), pp=2)
    assert ranks.loopback(True, (one,)) == ranks.loopback(False, (two,)) == ()
    (note,) = ranks.loopback(True, (two,))
    assert note.startswith("messages between the 2 hosts of the plan went over the loopback of this machine")


def test_islands_are_on_hosts_of_their_own():
    islands = [make.plan(make.fleet(make.cluster(name))) for name in "ab"]
    assert ranks.loopback(True, islands[:1]) == ()
    assert "the 2 hosts" in ranks.loopback(True, islands)[0]


@pytest.mark.parametrize(
    ("compute", "predicted", "told"),
    [
        ("paced", 14.0, "This takes 38.9 h or more: 1 + 1 times the predicted 14 s at scale 5000."),
        ("paced", 0.05, ""),
        ("paced", None, ""),
        ("real", 14.0, ""),
    ],
)
def test_a_long_wait_is_told_before_it_begins(capsys, compute, predicted, told):
    ranks.note_wait(predicted, RunOptions(1, compute, 0.0), 5000.0)
    seen = " ".join(capsys.readouterr().err.split())
    assert seen.startswith(told) and bool(seen) == bool(told)


def test_the_scale_of_the_lab_is_the_given_one_or_the_smallest():
    plan = make.plan(make.fleet(make.cluster(nodes=2, nics=(make.nic("ethernet", 1e9),))), pp=2)
    assert ranks.lab_scale(plan, RunOptions(1, "paced", 7.0)) == 7.0
    assert ranks.lab_scale(plan, RunOptions(1, "paced", 0.0)) >= 1.0


@pytest.mark.parametrize("as_json", [False, True])
def test_what_the_lab_measured_of_any_kind_of_plan(capsys, as_json):
    """The table or the facts of the comparison, the notes, and whether the cores had time enough."""
    answer = InLab("compared", ("links are fast",), Load(0.9, 0.05, 0.25))
    ranks.show_lab(answer, 8.0, {"format": "x"}, lambda: Text("a table"), as_json)
    out, err = capsys.readouterr()
    assert "Note: links are fast." in err
    assert "This measurement is not valid" in err
    if as_json:
        cores = {"busy": 0.9, "stolen": 0.05, "ranks": 0.25, "valid": False}
        assert json.loads(out) == {"format": "x", "notes": ["links are fast"], "cores": cores}
    else:
        assert out.startswith("a table")
        assert "Scale 8; the cores were busy 90% of the time, 25% with the ranks." in err
