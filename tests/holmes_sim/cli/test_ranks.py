"""What is said of the network of a run on one machine."""

from __future__ import annotations

from holmes_sim.cli import ranks
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
