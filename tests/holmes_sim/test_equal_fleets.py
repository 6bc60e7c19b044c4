"""Topologies that are equal but for the names of equal clusters."""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.equal_fleets import representatives
from holmes_sim.requirements import require
from sim.formats.edits import edited

SITES = commands.load("two-sites-trunk")
FIVE = {"clusters.east.nodes": 5}, {"clusters.west.nodes": 5}


def test_a_node_more_at_either_of_two_equal_sites():
    assert representatives([edited(SITES, facts) for facts in FIVE]) == (0, 0)
    assert representatives([SITES, edited(SITES, FIVE[1]), edited(SITES, FIVE[0]), SITES]) == (0, 1, 1, 0)


def test_sites_that_differ():
    faster = edited(SITES, {"clusters.east.node.nics[0].bandwidth": "400 Gbit/s"})
    dearer = edited(SITES, {"clusters.east.node.nics[0].price": "1 USD/h"})
    for unlike in (faster, dearer):
        assert representatives([edited(unlike, facts) for facts in FIVE]) == (0, 1)
    assert representatives([SITES, faster, edited(SITES, {"workload.global_batch_size": 768})]) == (0, 1, 2)


def test_links_decide_where_clusters_are_equal():
    third = SITES.facts()["clusters"]["east"]
    link = SITES.facts()["links"][0]

    def three(*ends):
        links = [link | {"between": list(pair)} for pair in ends]
        return edited(SITES, {"clusters.north": third, "links": links})

    chain, other, ring = (
        three(("east", "west"), ("west", "north")),
        three(("north", "east"), ("west", "east")),
        three(("east", "west"), ("west", "north"), ("north", "east")),
    )
    assert representatives([chain, other, ring]) == (0, 0, 2)


def test_requirements_of_a_cluster_keep_its_name():
    asked = require(SITES, {"clusters": {"east": {"tp": 4}}})
    assert representatives([edited(asked, facts) for facts in FIVE]) == (0, 1)
    both = require(SITES, {"tp": 4})
    assert representatives([edited(both, facts) for facts in FIVE]) == (0, 0)
