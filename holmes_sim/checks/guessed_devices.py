"""Devices whose rates the catalogue guesses."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.guesses import CURVES, catalogued, is_guessed


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each cluster with such devices, unless a profile measured them."""
    for cluster in subject.topology.fleet.clusters:
        spec = cluster.node.device
        facts = catalogued(spec, subject.topology.stack)
        guessed = [what for key, what in CURVES.items() if facts is not None and is_guessed(facts, key)]
        if not guessed or spec.profile is not None:
            continue
        yield Finding(
            ("clusters", cluster.name, "node", "devices", "type"),
            f"the catalogue guesses the efficiency of {' and '.join(guessed)} on {spec.name}",
            "the step may be well off, and so may the share of layers that its stages get beside other devices",
            f"a profile measured on one {spec.name}: holmes-sim profile --model MODEL, then plan --profile FILE",
        )
